"""What a pass over a stream has gathered, as a file keeps it: sums, counts, and a seeded sample of the samples."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from layerscope.core.errors import count
from layerscope.core.files import aside, foreign
from layerscope.inputs import Corpus
from layerscope.inputs.streams import Stream
from layerscope.metrics.moments import Sums, ValueSums
from layerscope.profiling.passing import Tensors
from layerscope.profiling.plan import Job
from layerscope.profiling.summing import KINDS, of_stream
from layerscope.runs.registry import METRICS, is_scalar, parse_key

FACTS = "facts"


@dataclass(order=True)
class Kept:
    """One sample of the reservoir: those with the lowest seeded priorities are kept, whoever reads them, and when."""

    priority: float
    chunk: int
    row: int
    sample: str = field(compare=False)
    name: str = field(compare=False)
    label: str | int | None = field(compare=False)


@dataclass
class Gathered:
    """What a pass has gathered of the chunks before `next`, as a file keeps it.

    `begun` is the manifest that the pass was started with; `seen` counts rows of the data, `empty` those without a
    token or a text, `cut` texts cut at the maximal length, `broken` samples with NaN or infinity.
    """

    begun: dict[str, Any]
    sums: dict[str, Sums] = field(default_factory=dict)
    kept: list[Kept] = field(default_factory=list)
    shifts: Tensors = field(default_factory=dict)
    next: int = 0
    seen: int = 0
    empty: int = 0
    cut: int = 0
    broken: int = 0
    reached: bool = False

    COUNTS = ("next", "seen", "empty", "cut", "broken", "reached")

    def save(self, path: Path) -> None:
        """Write all of it, whole or not at all."""
        facts = {name: getattr(self, name) for name in self.COUNTS} | {"begun": self.begun}
        facts["kept"] = [list(vars(kept).values()) for kept in self.kept]
        tensors = {f"{key}|{name}": value for key, own in self.sums.items() for name, value in own.tensors().items()}
        tensors |= {f"shift|{pooling}": shift for pooling, shift in self.shifts.items()}
        tensors[FACTS] = torch.frombuffer(bytearray(json.dumps(facts).encode()), dtype=torch.uint8)
        path.parent.mkdir(parents=True, exist_ok=True)
        aside(path, lambda part: save_file({key: value.contiguous() for key, value in tensors.items()}, part))

    @classmethod
    def load(cls, path: Path) -> "Gathered":
        """Return what was written; raise `LayerscopeError` where a file is damaged."""
        try:
            tensors = load_file(path)
            facts = json.loads(bytes(tensors.pop(FACTS).numpy()))
            kept = [Kept(*values) for values in facts.pop("kept")]
        except Exception as error:  # of a damaged file any
            raise foreign(path) from error
        parts: dict[str, Tensors] = {}
        for key, value in tensors.items():
            name, _, own = key.rpartition("|")
            parts.setdefault(name, {})[own] = value.clone()  # what is mapped to a file keeps it from being replaced
        shifts = parts.pop("shift", {})
        # a file lists tensors by size: tables have rows in the order in which sums were first added
        sums = {key: KINDS[key.partition(" ")[0]](**own) for key, own in sorted(parts.items())}
        return cls(**facts, sums=sums, kept=kept, shifts=shifts)

    def join(self, other: "Gathered") -> None:
        """Add what another process has gathered of other chunks."""
        for key, own in other.sums.items():
            self.sums[key] = self.sums[key] + own if key in self.sums else own  # type: ignore[operator]
        for name in ("seen", "empty", "cut", "broken"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.kept = sorted([*self.kept, *other.kept])

    def facts(self) -> dict[str, Any]:
        """Return what the run's manifest keeps of the pass."""
        known = {"samples": self.seen, "empty": self.empty, "cut": self.cut, "broken": self.broken}
        return known | {"kept": len(self.kept), "data": self.begun["data"]}

    def notes(self, job: Job, stream: Stream, kept: int) -> list[str]:
        """Return the lines on what was read and left out, and on which metrics rest on how many samples."""
        summed, until = of_stream(job.options).metrics, job.options.until_stderr
        rest = [name for name in job.options.metrics if name not in summed]
        titles = (", ".join(METRICS[name].title for name in names) for names in (summed, rest))
        lines = [f"all {count(self.seen, 'sample')}: {next(titles)}"]
        lines += [f"a seeded sample of {kept:,} of them: {next(titles)}"] if rest else []
        lines += [f"{self.empty:,} samples have no text: they are left out and counted"] if self.empty else []
        lines += [f"{self.cut:,} texts are cut at {count(job.model.max_length or 0, 'token')}"] if self.cut else []
        lines += [f"{self.broken:,} samples hold NaN or infinity: they are left out and counted"] if self.broken else []
        if until is not None:
            errors = [relative_error(sums) for key, sums in values_in(self.sums, summed).items()]
            of = "" if stream.length is None else f" of {stream.length:,}"
            ended = f"ended after {self.seen:,}{of} samples" if self.reached else "took all data"
            lines.append(f"the pass {ended}: standard errors are at most {max(errors):.2%} of their range over layers")
        return lines

    def corpus(self, stream: Stream, most: int) -> Corpus:
        """Return the samples of the reservoir in the order of the data."""
        kept = sorted(self.kept[:most], key=lambda one: (one.chunk, one.row))
        labels = [one.label for one in kept if one.label is not None]
        if len({*map(type, labels)}) > 1:  # no column mixes numbers and texts
            labels = [*map(str, labels)]
        known = tuple(labels) if len(labels) == len(kept) else None
        names = tuple(one.name for one in kept)
        return Corpus(stream.name, "text", tuple(one.sample for one in kept), names, known, stream.notes)


def values_in(sums: dict[str, Sums], asked: Sequence[str]) -> dict[str, ValueSums]:
    """Return the sums whose errors decide about the end of a pass: of metrics of tokens, at the layers themselves."""
    found = {key.removeprefix("tokens "): own for key, own in sums.items() if isinstance(own, ValueSums)}
    keys = {key: parse_key(key) for key in found if is_scalar(key)}
    return {key: found[key] for key, (metric, _, site) in keys.items() if metric in asked and site == "raw"}


def relative_error(sums: ValueSums) -> float:
    """Return the largest standard error of a value over the range of its means, both over layers."""
    known = sums.count > 1
    if not bool(known.any()):
        return 0.0
    means, error = sums.mean[known], float(sums.stderr[known].max())
    spread = float(means.max() - means.min())
    return error / spread if spread else math.inf if error else 0.0

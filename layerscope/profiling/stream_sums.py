"""What a pass over a stream sums up, as a file keeps it: sums, counts, and a seeded sample of the samples.

The file is written again and again, so that a killed pass goes on from its last checkpoint. It
holds its own checksum: a mark beside it, as of shards, could be one checkpoint older.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count as count_up
from operator import itemgetter
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from layerscope.core.errors import count
from layerscope.core.files import aside, foreign, is_intact, save_sealed
from layerscope.inputs import Corpus
from layerscope.inputs.streams import Stream
from layerscope.metrics.moments import ValueSums
from layerscope.metrics.neural_collapse import ClassSums, FromCollapse
from layerscope.profiling.chunk_sums import KINDS
from layerscope.profiling.forward_pass import Tensors
from layerscope.profiling.plan import Job
from layerscope.runs.registry import METRICS, is_scalar, parse_key

FACTS = "facts"


Kept = tuple[float, int, int, str, str, str | int | None]
"""A sample of the reservoir: priority, number of its chunk, its place there, text, name and label."""


@dataclass
class StreamSums:
    """What a pass has summed up of its chunks before `next`, as a file keeps it.

    `begun` is the manifest that the pass was started with; `seen` counts rows of the data, `empty`
    those without a token or a text, `cut` texts cut at the maximal length, `broken` samples with
    NaN or infinity. The reservoir `kept` are the samples of the lowest seeded priorities, whoever
    reads them, and when; `classes` the labels in the order in which they came, by which sums by
    class are numbered, None where these are too many. A pass has `ended` with the data or has
    `reached` the errors that were asked for. Chunks before `before`, and those in `done`, were
    summed up by another number of processes, and are in the first part.
    """

    begun: dict[str, Any]
    sums: dict[str, Any] = field(default_factory=dict)
    kept: list[Kept] = field(default_factory=list)
    classes: list[str] | None = field(default_factory=list)
    next: int = 0
    before: int = 0
    done: list[int] = field(default_factory=list)
    seen: int = 0
    empty: int = 0
    cut: int = 0
    broken: int = 0
    reached: bool = False
    ended: bool = False

    def save(self, path: Path) -> None:
        """Write all of it, whole or not at all."""
        facts = {name: value for name, value in vars(self).items() if name != "sums"}
        tensors = {
            f"{key}|{name}": value
            for key, summed in self.sums.items()
            for name, value in summed.tensors().items()
        }
        tensors[FACTS] = torch.frombuffer(bytearray(json.dumps(facts).encode()), dtype=torch.uint8)
        path.parent.mkdir(parents=True, exist_ok=True)
        aside(path, lambda part: save_sealed(tensors, part))

    @classmethod
    def load(cls, path: Path) -> "StreamSums":
        """Return what was written; raise `LayerscopeError` where a file is damaged."""
        try:
            if not is_intact(path):
                raise ValueError("it has changed since it was written")
            tensors = load_file(path)
            facts = json.loads(bytes(tensors.pop(FACTS).numpy()))
        except Exception as error:  # of a damaged file any
            raise foreign(path) from error
        parts: dict[str, Tensors] = {}
        for key, value in sorted(tensors.items()):
            name, _, field_name = key.rpartition("|")
            # what is mapped to a file keeps it from being replaced
            parts.setdefault(name, {})[field_name] = value.clone()
        sums = {
            key: KINDS[key.partition(" ")[0]](**field_name) for key, field_name in parts.items()
        }
        return cls(**{**facts, "kept": [tuple(one) for one in facts["kept"]]}, sums=sums)

    def begin(self) -> "StreamSums":
        """Return what another process of the same number has at its beginning."""
        return StreamSums(self.begun, next=self.before, before=self.before, done=self.done)

    def has(self, number: int) -> bool:
        """Return whether other numbers of processes have summed up a chunk."""
        return number < self.before or number in self.done

    def numbered(self, labels: Sequence[Any] | None, most: int) -> Tensor | None:
        """Return the numbers of labels `[n]`, new ones last; None once more than `most` are known, or with None."""
        classes = (
            None
            if self.classes is None or labels is None
            else [*dict.fromkeys([*self.classes, *map(str, labels)])]
        )
        if classes is None or labels is None or len(classes) > most:
            self.classes = None
            for key in [key for key, summed in self.sums.items() if isinstance(summed, ClassSums)]:
                del self.sums[key]
            return None
        self.classes, numbers = classes, dict(zip(classes, range(len(classes)), strict=True))
        return torch.tensor([numbers[str(label)] for label in labels], dtype=torch.int64)

    def join(self, other: "StreamSums", most: int) -> None:
        """Add what another process has summed up of other chunks, `most` classes at most."""
        numbers = self.numbered(other.classes, most)
        for key, summed in other.sums.items():
            if isinstance(summed, ClassSums):
                if numbers is None:
                    continue
                summed = summed.at(numbers, len(self.classes or ()))
            self.sums[key] = self.sums[key] + summed if key in self.sums else summed
        for name in ("seen", "empty", "cut", "broken"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.kept = sorted([*self.kept, *other.kept])

    def notes(self, job: Job, stream: Stream, kept: int, rest: Sequence[str]) -> list[str]:
        """Return the lines on what was read and left out, and on which metrics rest on how many samples."""
        options = job.options
        by_class = [m.name for m in options.chosen if isinstance(m.how, FromCollapse)]
        lack = _lack_of(self.classes)
        summed = [name for name in options.metrics if not (lack and name in by_class)]
        texts = count(job.model.max_length or 0, "token")
        lines = {
            f"all {count(self.seen - self.empty, 'sample')}: {_titles(summed)}": summed,
            f"a seeded sample of {kept:,} of them: {_titles(rest)}": rest,
            f"{_titles(by_class)}: {lack}": by_class and lack,
            f"{count(self.empty, 'row')} without a text, or a label: left out": self.empty,
            f"{self.cut:,} texts are cut at {texts}": self.cut,
            f"{self.broken:,} samples hold NaN or infinity: they are left out and counted": self.broken,
        }
        shown = [line for line, is_due in lines.items() if is_due]
        if options.until_stderr is not None:
            shown.append(self._end(summed, stream))
        return shown

    def _end(self, summed: Sequence[str], stream: Stream) -> str:
        """Return the line on where a pass ended that watches its errors."""
        errors = [relative_error(sums) for sums in values_in(self.sums, summed).values()]
        ended = "took all data"
        if self.reached:
            total = "" if stream.length is None else f" of {stream.length:,}"
            ended = (
                f"ended after the first {self.seen:,}{total} rows, which represent the rest if "
                "their order is random"
            )
        return f"the pass {ended}: standard errors are at most {max(errors):.2%} of their range over layers"

    def corpus(self, stream: Stream, most: int) -> Corpus:
        """Return the samples of the reservoir in the order of the data."""
        _, _, _, samples, names, labels = zip(
            *sorted(self.kept[:most], key=itemgetter(1, 2)), strict=True
        )
        if len({*map(type, labels)}) > 1:  # no column mixes numbers and texts
            labels = tuple(map(str, labels))
        classes = None if stream.label_column is None and stream.head.labels is None else labels
        return Corpus(stream.name, "text", samples, names, classes, stream.notes)


def _titles(names: Sequence[str]) -> str:
    return ", ".join(METRICS[name].title for name in names)


def _lack_of(classes: Sequence[str] | None) -> str:
    """Return why there is nothing of all samples by class, or nothing."""
    if classes is None:
        return "of the kept samples, as there are too many classes to sum each"
    return "" if len(classes) > 1 else "not measured, as the data have no two labels"


def as_first(parts: Mapping[Path, StreamSums], most: int) -> StreamSums:
    """Return what the parts of some number of processes have summed up as the first part of another number."""
    done = set[int]()
    for path, part in parts.items():
        rank, size = map(int, path.stem.split("-of-"))
        done |= {*range(part.before), *part.done, *range(rank, part.next, size)}
    whole, *rest = parts.values()
    for part in rest:
        whole.join(part, most)
        whole.reached |= part.reached
    whole.next = whole.before = next(number for number in count_up() if number not in done)
    whole.done, whole.ended = sorted(number for number in done if number > whole.before), False
    return whole


def values_in(sums: dict[str, Any], metrics: Sequence[str]) -> dict[str, ValueSums]:
    """Return the sums whose errors decide about the end of a pass: of metrics of tokens, at the layers themselves."""
    values = {
        key.removeprefix("tokens "): summed
        for key, summed in sums.items()
        if isinstance(summed, ValueSums)
    }
    keys = {key: parse_key(key) for key in values if is_scalar(key)}
    return {
        key: values[key]
        for key, (metric, _, site) in keys.items()
        if metric in metrics and site == "raw"
    }


def relative_error(sums: ValueSums) -> float:
    """Return the largest standard error of a value over the range of its means, both over layers."""
    defined = sums.count > 1
    if not bool(defined.any()):
        return 0.0
    means, error = sums.mean[defined], float(sums.stderr[defined].max())
    spread = float(means.max() - means.min())
    return error / spread if spread else math.inf if error else 0.0

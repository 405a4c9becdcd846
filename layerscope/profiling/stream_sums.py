"""What a pass over a stream keeps: sums over all samples, and a seeded sample of them.

Means of values and second moments of pooled states give most metrics exactly; what needs all
samples at once is computed from those that are kept. The file is written again and again, so that a
killed pass goes on from its last checkpoint. It holds its own checksum: a mark beside it, as of
shards, could be one checkpoint older.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress
from operator import itemgetter
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from layerscope.core.errors import LayerscopeError, count
from layerscope.core.files import aside, foreign, is_intact, save_sealed
from layerscope.inputs import Corpus
from layerscope.inputs.streams import Stream
from layerscope.metrics.moments import RowSums, SummedRows, ValueSums
from layerscope.profiling.forward_pass import Tensors
from layerscope.profiling.plan import Job
from layerscope.profiling.source import Row, Source
from layerscope.profiling.tables import has_values, of_rows, of_tokens
from layerscope.runs.registry import METRICS, is_scalar
from layerscope.runs.states import OWN, PROJECTED, Column

FACTS = "facts"
KINDS: dict[str, Any] = {"tokens": ValueSums, "rows": RowSums}
Kept = tuple[float, int, int, str, str, str | int | None]
"""A kept sample: priority, number of its chunk, its place there, text, name and label."""


def of_stream(job: Job) -> Job:
    """Return the job with the metrics that sums over chunks give."""
    options = job.options
    summed = [metric.name for metric in options.chosen if metric.how.streams(options)]
    if not summed:
        raise LayerscopeError(
            f"{', '.join(options.metrics)} cannot be computed from sums over samples, and "
            f"`keep_states={options.keep_states!r}` keeps only sums of most: leave `keep_states` out"
        )
    options = replace(options, metrics=tuple(summed), store_dtype="float32")
    return replace(job, options=options)


@dataclass
class StreamSums:
    """What a process has summed up of its chunks before number `next`, as a file keeps it.

    `begun` is the manifest that the pass was started with; `sums` are by kind and what they are of,
    such as "rows raw.mean". `seen` counts rows of the data, `empty` those without a token or a
    text, `cut` texts cut at the maximal length, `broken` samples with NaN or infinity. `kept` are
    the samples of the lowest seeded priorities, whoever reads them, and when.
    """

    begun: dict[str, Any]
    sums: dict[str, Any] = field(default_factory=dict)
    kept: list[Kept] = field(default_factory=list)
    next: int = 0
    seen: int = 0
    empty: int = 0
    cut: int = 0
    broken: int = 0
    ended: bool = False

    def save(self, path: Path) -> None:
        """Write all of it, whole or not at all."""
        facts = {**vars(self), "sums": {}}
        written = bytearray(json.dumps(facts).encode())
        tensors = {FACTS: torch.frombuffer(written, dtype=torch.uint8)}
        for key, summed in self.sums.items():
            for name, value in summed.tensors().items():
                tensors[f"{key}|{name}"] = value
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
        kept = [tuple(sample) for sample in facts.pop("kept")]
        totals = cls(**facts, kept=kept)
        for key, fields in parts.items():
            kind, _, _ = key.partition(" ")
            totals.sums[key] = KINDS[kind](**fields)
        return totals

    def add(self, job: Job, tensors: Tensors) -> None:
        """Add the values of tokens and the pooled states that were measured of finite samples."""
        fine = tensors["broken"] < 0
        if not bool(fine.any()):
            return
        has_rows = job.options.wants("pooled")
        for key, values in tensors.items():
            if is_scalar(key):
                self._add(f"tokens {key}", ValueSums.of(values[:, fine]))
            elif has_rows and key.rpartition(".")[2] in (*job.vectors.poolings, OWN):
                if key.startswith("normed."):  # only after the last layer
                    values = values[-1:]
                self._add(f"rows {key}", RowSums.of(values[:, fine]))

    def _add(self, key: str, sums: Any) -> None:
        self.sums[key] = self.sums[key] + sums if key in self.sums else sums

    def join(self, other: "StreamSums") -> None:
        """Add what another process has summed up of other chunks."""
        for key, summed in other.sums.items():
            self._add(key, summed)
        self.seen += other.seen
        self.empty += other.empty
        self.cut += other.cut
        self.broken += other.broken
        self.kept = sorted([*self.kept, *other.kept])

    def rows(self, source: Source) -> Iterator[Row]:
        """Yield the rows of a table that the sums give, by the options and the total of a source."""
        for key, sums in self.sums.items():
            kind, name = key.split(" ")
            if kind == "tokens":
                if has_values(name.partition(".")[0], sums.mean):
                    yield from of_tokens(source, name, sums.estimates())
                continue
            site, _, pooling = name.rpartition(".")
            layers = source.run.layers_at(site)
            if site == PROJECTED:
                layers = tuple(range(source.run.depth + 1))
            for i, layer in enumerate(layers):
                yield from of_rows(
                    source, SummedRows(sums, i), pooling, Column(site, layer)
                )

    def notes(
        self, job: Job, summed: Sequence[str], rest: Sequence[str], kept: int
    ) -> list[str]:
        """Return the lines on what was left out, and on which metrics rest on how many samples."""
        texts = count(job.model.max_length or 0, "token")
        lines = {
            f"all {count(self.seen - self.empty, 'sample')}: {_titles(summed)}": summed,
            f"a seeded sample of {kept:,} of them: {_titles(rest)}": rest,
            f"{count(self.empty, 'row')} without a text, or a label: left out": self.empty,
            f"{self.cut:,} texts are cut at {texts}": self.cut,
            f"{self.broken:,} samples hold NaN or infinity: they are left out and counted": self.broken,
        }
        return [*compress(lines, lines.values())]

    def corpus(self, stream: Stream, most: int) -> Corpus:
        """Return the kept samples in the order of the data."""
        chosen = sorted(self.kept[:most], key=itemgetter(1, 2))
        _, _, _, samples, names, labels = zip(*chosen, strict=True)
        if stream.label_column is None and stream.head.labels is None:
            return Corpus(stream.name, "text", samples, names, None, stream.notes)
        if len({*map(type, labels)}) > 1:  # no column mixes numbers and texts
            labels = tuple(map(str, labels))
        return Corpus(stream.name, "text", samples, names, labels, stream.notes)


def _titles(names: Sequence[str]) -> str:
    return ", ".join(METRICS[name].title for name in names)

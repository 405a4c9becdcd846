"""What a pass over a stream keeps: sums over all samples, and a seeded sample of them.

Means of values and second moments of pooled states give most metrics exactly; what needs all
samples at once is computed from those that are kept. The file is written again and again, so that a
killed pass goes on from its last checkpoint. It is an archive of arrays, each with a checksum of
its own: a mark beside the file, as of shards, could be one checkpoint older.
"""

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import torch

from layerscope.core import LayerscopeError, aside, count
from layerscope.core.files import foreign
from layerscope.inputs import Corpus
from layerscope.inputs.columns import labels_of
from layerscope.inputs.streams import Stream
from layerscope.metrics.moments import RowSums, SummedRows, ValueSums
from layerscope.profiling.one_layer import has_values, rows_by_layer, rows_of_states
from layerscope.profiling.plan import Job, Tensors
from layerscope.profiling.source import Row, Source
from layerscope.runs.registry import METRICS, is_scalar
from layerscope.runs.states import OWN, Column

FACTS = "facts"
KINDS: dict[str, Any] = {"tokens": ValueSums, "rows": RowSums}
Kept = tuple[float, int, int, str, str, str | int | None]
"""A kept sample: priority, number of its chunk, its place there, text, name and label."""


def of_stream(job: Job) -> Job:
    """Return the job with the metrics that sums over chunks give.

    Raises `LayerscopeError` where none does.
    """
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
        facts = json.dumps({**vars(self), "sums": {}})
        encoded = np.frombuffer(facts.encode(), dtype=np.uint8)
        arrays: dict[str, Any] = {FACTS: encoded}
        for key, summed in self.sums.items():
            for name, value in vars(summed).items():
                arrays[f"{key}|{name}"] = value.numpy()

        def write(part: Path) -> None:
            with part.open("wb") as file:
                np.savez(file, **arrays)

        path.parent.mkdir(parents=True, exist_ok=True)
        aside(path, write)

    @classmethod
    def load(cls, path: Path) -> "StreamSums":
        """Return what was written; raise `LayerscopeError` where a file is damaged."""
        try:
            with np.load(path) as arrays:
                tensors = {key: torch.from_numpy(arrays[key]) for key in sorted(arrays)}
        except Exception as error:  # of a damaged file any
            raise foreign(path) from error
        facts = json.loads(bytes(tensors.pop(FACTS).numpy()))
        facts["kept"] = [tuple(sample) for sample in facts["kept"]]
        parts = defaultdict[str, Tensors](dict)
        for key, value in tensors.items():
            name, _, field_name = key.rpartition("|")
            parts[name][field_name] = value
        totals = cls(**facts)
        for key, fields in parts.items():
            kind, _, _ = key.partition(" ")
            totals.sums[key] = KINDS[kind](**fields)
        return totals

    def add(self, job: Job, tensors: Tensors) -> None:
        """Add the values of tokens and the pooled states that were measured of finite samples.

        `tensors` are those of a chunk, keyed as in a shard.
        """
        finite = tensors["broken"] < 0
        if not finite.any():
            return
        poolings = [OWN, *job.vectors.poolings] if job.options.wants("pooled") else []
        for key, values in tensors.items():
            site, _, pooling = key.rpartition(".")
            if is_scalar(key):
                self._add(f"tokens {key}", ValueSums.of(values[:, finite]))
            elif pooling in poolings:
                if site == "normed":  # only after the last layer
                    values = values[-1:]
                self._add(f"rows {key}", RowSums.of(values[:, finite]))

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
            if kind == "rows":
                site, _, pooling = name.rpartition(".")
                for i, layer in enumerate(source.run.layers_at(site)):
                    states = SummedRows(sums, i)
                    column = Column(site, layer)
                    yield from rows_of_states(source, states, pooling, column)
            elif has_values(name, sums.mean):
                yield from rows_by_layer(source, name, sums.estimates())

    def notes(
        self, job: Job, summed: Sequence[str], rest: Sequence[str], kept: int
    ) -> list[str]:
        """Return the lines on what was left out, and on which metrics rest on how many samples."""
        lines = []
        if summed:
            samples = count(self.seen - self.empty, "sample")
            lines.append(f"all {samples}: {_titles(summed)}")
        if rest:
            lines.append(f"a seeded sample of {kept:,} of them: {_titles(rest)}")
        if self.empty:
            rows = count(self.empty, "row")
            lines.append(f"{rows} without a text, or a label: left out")
        if self.cut:
            most = count(job.model.max_length or 0, "token")
            lines.append(f"{self.cut:,} texts are cut at {most}")
        if self.broken:
            lines.append(
                f"{self.broken:,} samples hold NaN or infinity: they are left out and counted"
            )
        return lines

    def corpus(self, stream: Stream, most: int) -> Corpus:
        """Return the kept samples in the order of the data, at most `most`, those of lowest priority."""
        chosen = sorted(self.kept[:most], key=itemgetter(1, 2))
        _, _, _, samples, names, labels = zip(*chosen, strict=True)
        kept = None
        if stream.head.labels is not None:
            # those of a chunk were classes or numbers by themselves
            kept = labels_of(labels) or tuple(map(str, labels))
        return Corpus(stream.name, "text", samples, names, kept, stream.notes)


def _titles(names: Sequence[str]) -> str:
    return ", ".join(METRICS[name].title for name in names)

"""What a pass over a stream adds up of every chunk, and the rows of a table that come of the sums."""

from collections.abc import Iterator
from copy import copy
from typing import Any

import torch
from torch import Tensor

from layerscope.core.errors import LayerscopeError
from layerscope.metrics.factors import FromRows
from layerscope.metrics.moments import PairSums, RowSums, SummedRows, Sums, ValueSums
from layerscope.metrics.pairs import FromPairs, FromPath
from layerscope.profiling.plan import Job, Options
from layerscope.profiling.source import Row, Source
from layerscope.profiling.tables import has_values, of_pairs, of_path, of_rows, of_tokens
from layerscope.runs.registry import METRICS, is_scalar, measured
from layerscope.runs.states import PROJECTED, Column

Tensors = dict[str, Tensor]
PAIR_BYTES = 2**30
"""Sums of products between layers that outgrow this are not taken: similarities are then those of the reservoir."""
KINDS = {"tokens": ValueSums, "rows": RowSums, "products": PairSums, "similarity": ValueSums, "path": ValueSums}


def of_stream(options: Options) -> Options:
    """Return the options of one chunk: the metrics that sums over chunks give."""
    found = copy(options)
    found.metrics = tuple(name for name in options.metrics if METRICS[name].how.streams(options))
    found.store_dtype = "float32"
    if not found.metrics:
        raise LayerscopeError(
            f"no sum over samples gives {', '.join(options.metrics)}, and keep_states={options.keep_states} keeps only "
            "sums of most: leave keep_states out"
        )
    return found


def as_summed(options: Options) -> Options:
    """Return options without what depends on the mean of all samples."""
    found = copy(options)
    found.rows = tuple(rows for rows in options.rows if rows != "centered")
    found.cosine = tuple(form for form in options.cosine if form == "uncentered")
    return found


class Summing:
    """Adds up chunks; `found` holds the sums by kind and what they are of, such as "rows raw.mean"."""

    def __init__(self, job: Job, found: dict[str, Sums] | None = None) -> None:
        self.options, self.vectors = as_summed(job.options), job.vectors
        self.found: dict[str, Any] = {} if found is None else found
        model = job.model
        layers, pooled = model.stack.depth + len(model.sites), {*job.vectors.poolings, *job.vectors.pairs}
        fits = PairSums.memory(layers, model.stack.width) * len(pooled) <= PAIR_BYTES
        self.products = fits and any(how.of_sums for _, how in self._wanted(FromPairs))

    def _wanted(self, kind: Any) -> list[tuple[Any, Any]]:
        found = ((metric, how) for metric, how in measured(kind) if self.options.measures(metric))
        return [(metric, how) for metric, how in found if how.streams(self.options)]

    def _add(self, key: str, sums: Any) -> None:
        self.found[key] = self.found[key] + sums if key in self.found else sums

    def take(self, tensors: Tensors, shifts: Tensors) -> None:
        """Add what was measured of a chunk: the values of tokens, and the pooled states of samples that are finite."""
        fine = tensors["broken"] < 0
        if not bool(fine.any()):
            return
        pooled = {}
        for key, values in tensors.items():
            if is_scalar(key):
                self._add(f"tokens {key}", ValueSums.of(values[:, fine]))
            elif key != "broken":  # of the final norm, geometry takes the last layer
                pooled[key] = values[-1:, fine] if key.startswith("normed.") else values[:, fine]
        for key, states in pooled.items() if self._wanted(FromRows) else ():
            if key.rpartition(".")[2] in (*self.vectors.poolings, "own"):
                self._add(f"rows {key}", RowSums.of(states))
        for pooling in dict.fromkeys((*self.vectors.pairs, *self.vectors.poolings)):
            self._take_pairs(pooling, pooled, shifts)

    def _take_pairs(self, pooling: str, pooled: Tensors, shifts: Tensors) -> None:
        states = layers_of(pooled, pooling)
        if self.products:
            self.found.setdefault(f"products {pooling}", PairSums.around(shifts[pooling])).add(states)
        for metric, how in self._wanted(FromPairs):
            for form in how.forms(self.options) if how.by_sample else ():
                found = form.by_sample(states.transpose(0, 1))
                self._add(f"similarity {pooling} {metric.name} {form.variant}", ValueSums.from_estimate(*found))
        for metric, how in self._wanted(FromPath):
            for variant, values in how.measured(pooled[f"raw.{pooling}"].transpose(0, 1), self.options):
                self._add(f"path {pooling} {metric.name} {variant or ''}", ValueSums.of(values.mT))

    def rows(self, source: Source) -> Iterator[Row]:
        """Yield the rows of a table that the sums give, by the options and the total of a source made for them."""
        for key, sums in self.found.items():
            kind, name, *more = key.split(" ")
            if kind == "tokens":
                metric = name.partition(".")[0]
                yield from of_tokens(source, name, sums.estimates() if has_values(metric, sums.mean) else ())
            elif kind == "rows":
                yield from self._pooled(source, name, sums)
            elif kind == "products":
                yield from self._products(source, name, sums)
            elif kind == "similarity":
                yield from of_pairs(source, more[0], more[1], name, (sums.mean, sums.stderr, sums.count))
            else:
                yield from self._path(source, sums, name, *more)

    def _pooled(self, source: Source, key: str, sums: RowSums) -> Iterator[Row]:
        site, _, pooling = key.rpartition(".")
        layers = range(source.run.depth + 1) if site == PROJECTED else source.run.layers_at(site)
        for i, layer in enumerate(layers):
            yield from of_rows(source, SummedRows(sums, i), pooling, Column(site, layer))

    def _products(self, source: Source, pooling: str, sums: PairSums) -> Iterator[Row]:
        for metric, how in source.wanted(FromPairs):
            for form in how.forms(source.options):
                if form.of_sums and form.lack(int(sums.count), sums.shift.shape[1]) is None:
                    values = form.of_sums(sums)
                    found = values, torch.full_like(values, torch.nan), torch.full_like(values, int(sums.count))
                    yield from of_pairs(source, metric.name, form.variant, pooling, found)

    def _path(self, source: Source, sums: ValueSums, pooling: str, name: str, variant: str) -> Iterator[Row]:
        metric, how = next(found for found in source.wanted(FromPath) if found[0].name == name)
        found, layers = sums.estimates(), source.run.columns[: source.run.depth + 1]
        columns = layers[how.first :][: len(found)] if metric.curve else layers[-1:]
        yield from of_path(source, name, variant or None, pooling, columns, found)


def layers_of(pooled: Tensors, pooling: str) -> Tensor:
    """Return the states `[L', n, D]` of the layers that are compared: all raw ones, and the last after its norm."""
    return torch.cat([pooled[key] for site in ("raw", "normed") if (key := f"{site}.{pooling}") in pooled])

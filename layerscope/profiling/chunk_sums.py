"""What a pass over a stream adds up of every chunk, and the rows of a table that come of the sums.

Means of values, second moments of pooled states, products between layers and sums by class give
most metrics exactly; what needs all samples at once is left to those that are kept.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from layerscope.core.errors import LayerscopeError
from layerscope.metrics.factors import FromRows
from layerscope.metrics.metric import How
from layerscope.metrics.moments import PairSums, RowSums, SummedRows, ValueSums
from layerscope.metrics.neural_collapse import ClassSums, FromCollapse
from layerscope.metrics.pairs import FromPairs
from layerscope.models import Vectors
from layerscope.profiling.labels import collapse_rows
from layerscope.profiling.options import PassOptions
from layerscope.profiling.plan import Job
from layerscope.profiling.source import Row, Source
from layerscope.profiling.tables import has_values, of_pairs, of_rows, of_tokens
from layerscope.runs.registry import is_scalar, measured
from layerscope.runs.states import OWN, PROJECTED, Column

Tensors = dict[str, Tensor]
MOST_BYTES = 2**30
"""Sums of products between layers, or by class, that outgrow this are not taken: their metrics are of the reservoir."""
KINDS = {
    "tokens": ValueSums,
    "rows": RowSums,
    "products": PairSums,
    "similarity": ValueSums,
    "classes": ClassSums,
}


def of_stream(job: Job) -> Job:
    """Return the job with the metrics that sums over chunks give, as far as these fit into memory."""
    options, model = job.options, job.model
    poolings = {*job.vectors.poolings, *job.vectors.pairs}
    layers = model.stack.depth + len(model.sites)
    is_large = PairSums.memory(layers, model.stack.width) * len(poolings) > MOST_BYTES

    def fits(how: How) -> bool:
        if isinstance(how, FromPairs) and how.of_sums:
            return not is_large
        return not isinstance(how, FromCollapse) or most_classes(job) >= 2

    summed = [
        metric.name for metric in options.chosen if metric.how.streams(options) and fits(metric.how)
    ]
    if not summed:
        raise LayerscopeError(
            f"{', '.join(options.metrics)} cannot be computed from sums over samples, and "
            f"`keep_states={options.keep_states!r}` keeps only sums of most: leave `keep_states` out"
        )
    return replace(job, options=replace(options, metrics=tuple(summed), store_dtype="float32"))


def most_classes(job: Job) -> int:
    """Return how many classes there may be for the sums by class to fit into memory."""
    width, layers = job.model.stack.width, len(job.model.layers) * len(job.vectors.poolings)
    return (MOST_BYTES // (8 * layers * width) - width) // 2


def as_summed(options: PassOptions) -> PassOptions:
    """Return options without what depends on the mean of all samples."""
    rows = tuple(rows for rows in options.rows if rows != "centered")
    cosine = tuple(form for form in options.cosine if form == "uncentered")
    return replace(options, rows=rows, cosine=cosine)


class ChunkSums:
    """Adds up chunks; `found` holds the sums by kind and what they are of, such as "rows raw.mean"."""

    def __init__(self, job: Job, found: dict[str, Any]) -> None:
        self.options, self.vectors, self.found = as_summed(job.options), job.vectors, found
        self.of_rows = [metric for metric, _ in measured(FromRows) if self.options.measures(metric)]
        similarities = [found for found in measured(FromPairs) if self.options.measures(found[0])]
        self.by_sample = [
            (metric.name, form) for metric, how in similarities for form in how.forms(self.options)
        ]
        self.products = any(how.of_sums for _, how in similarities)
        self.by_class = any(self.options.measures(metric) for metric, _ in measured(FromCollapse))
        self.final = job.model.sites[-1]

    def take(self, tensors: Tensors, shifts: Tensors) -> None:
        """Add what was measured of a chunk: the values of tokens, and the pooled states of samples that are finite."""
        fine = tensors["broken"] < 0
        if not bool(fine.any()):
            return
        for key in filter(is_scalar, tensors):
            self._add(f"tokens {key}", ValueSums.of(tensors[key][:, fine]))
        pooled = pooled_of(tensors)
        for key, states in pooled.items() if self.of_rows else ():
            if key.rpartition(".")[2] in (*self.vectors.poolings, OWN):
                self._add(f"rows {key}", RowSums.of(states))
        for pooling, states in (
            compared(pooled, self.vectors).items() if self.products or self.by_sample else ()
        ):
            if self.products:
                self.found.setdefault(f"products {pooling}", PairSums.around(shifts[pooling])).add(
                    states
                )
            for name, form in self.by_sample:
                if form.by_sample:
                    sums = ValueSums.from_estimate(*form.by_sample(states.transpose(0, 1)))
                    self._add(f"similarity {pooling} {name} {form.variant}", sums)

    def take_classes(self, tensors: Tensors, classes: Tensor) -> None:
        """Add the pooled states of finite samples by the numbers `[n]` of their classes."""
        fine = tensors["broken"] < 0
        for pooling in self.vectors.poolings:
            states = tensors[f"{self.final}.{pooling}"][:, fine]
            empty = ClassSums.empty(0, len(states), states.shape[-1])
            self.found.setdefault(f"classes {pooling}", empty).update(states, classes[fine])

    def _add(self, key: str, sums: Any) -> None:
        self.found[key] = self.found[key] + sums if key in self.found else sums

    def rows(self, source: Source) -> Iterator[Row]:
        """Yield the rows of a table that the sums give, by the options and the total of a source made for them."""
        for key, sums in self.found.items():
            kind, name, *more = key.split(" ")
            if kind == "tokens":
                metric = name.partition(".")[0]
                yield from of_tokens(
                    source, name, sums.estimates() if has_values(metric, sums.mean) else ()
                )
            elif kind == "rows":
                yield from self._pooled(source, name, sums)
            elif kind == "products":
                yield from self._products(source, name, sums)
            elif kind == "classes":
                columns = [Column(source.run.final, layer) for layer in source.run.layers]
                yield from collapse_rows(source, sums, name, columns)
            else:
                yield from of_pairs(
                    source, more[0], more[1], name, (sums.mean, sums.stderr, sums.count)
                )

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
                    numbers = (
                        values,
                        torch.full_like(values, torch.nan),
                        torch.full_like(values, int(sums.count)),
                    )
                    yield from of_pairs(source, metric.name, form.variant, pooling, numbers)


def pooled_of(tensors: Tensors) -> Tensors:
    """Return the states `[layers, n, D]` of finite samples by site and pooling; after the final norm, the last ones."""
    fine = tensors["broken"] < 0
    finite = {
        key: values[:, fine]
        for key, values in tensors.items()
        if key != "broken" and not is_scalar(key)
    }
    return {
        key: states[-1:] if key.startswith("normed.") else states for key, states in finite.items()
    }


def compared(pooled: Tensors, vectors: Vectors) -> Tensors:
    """Return by pooling the states `[L', n, D]` of the layers that are compared: all raw ones, and the normed last."""
    by_pooling = {}
    for pooling in (*vectors.pairs, *vectors.poolings):
        parts = [pooled.get(f"{site}.{pooling}") for site in ("raw", "normed")]
        by_pooling[pooling] = torch.cat([states for states in parts if states is not None])
    return by_pooling

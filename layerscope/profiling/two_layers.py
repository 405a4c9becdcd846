"""Rows of two layers each: similarities of every pair, and the path of a sample from layer to layer.

A similarity is measured between the layers 0 to L and the last one after its norm, each with each:
(L + 2)² rows. Where a sample has a similarity of its own, as a cosine, a row has the mean over the
samples and its standard error, and each sample's cosine to the last layer is written into a table
of samples. Else the error is unknown.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import product

import pandas as pd
import torch
from torch import Tensor

from layerscope.metrics.arrays import mean, slices
from layerscope.metrics.cosine_similarity import cosine_to
from layerscope.metrics.metric import Metric
from layerscope.metrics.pairs import CENTERING, FromPairs, FromPath
from layerscope.profiling.source import Row, Source
from layerscope.runs.states import Column

PART = 2048
"""A frame of per-sample values holds this many samples: text columns take many times what the numbers do."""


def pair_items(source: Source) -> list[tuple[str, str, FromPairs]]:
    """Return pooling, name and form of each similarity, such as centred and uncentred cosines."""
    items = []
    for pooling in source.pair_poolings:
        for metric, how in source.wanted(FromPairs):
            forms = how.forms(source.options)
            items += [(pooling, metric.name, form) for form in forms]
    return items


def pair_rows(source: Source, item: tuple[str, str, FromPairs]) -> Iterator[Row]:
    """Yield a similarity of all pairs of layers, NaN where samples are too few.

    Beside it each sample's cosine to the last layer is written, for the first pooling: that table
    may have millions of rows, and is written in parts as they are made.
    """
    pooling, name, how = item
    columns = source.run.columns
    rows = how.rows(source.rows)
    states = source.run.states(pooling, columns, rows)
    if how.lack(len(rows), states.width) is None:
        values, errors, counts = how.measured(states)
    else:
        values = torch.full([len(columns)] * 2, math.nan, dtype=torch.float64)
        errors = values
        counts = torch.full_like(values, len(rows))

    cells: Row = {"variant": how.variant, "pooling": pooling}
    for a, first in enumerate(columns):
        for b, second in enumerate(columns):
            value, error, n = (float(part[a, b]) for part in (values, errors, counts))
            cells |= {"layer_b": second.layer, "site_b": second.site, "n": int(n)}
            yield source.row(name, first, value, error, **cells)

    if name == "cosine_similarity" and pooling == source.pair_poolings[0]:
        cosines = cosine_to(states, center=CENTERING.values[how.variant])
        frames = _by_sample(source, how.variant, pooling, columns, cosines)
        source.folder.write_table(f"samples.cosine_{how.variant}", frames)


def _by_sample(
    source: Source,
    variant: str,
    pooling: str,
    columns: Sequence[Column],
    values: Tensor,
) -> Iterator[pd.DataFrame]:
    """Yield a table of the values `[N, layers]` of all samples, a part of them at a time.

    Its rows have sample, site, layer and value, and what is the same in all of them.
    """
    places = pd.DataFrame(columns, columns=["site", "layer"])
    places = places.assign(metric="cosine_to_last", variant=variant, pooling=pooling)
    samples = source.sample[source.rows]
    for part in slices(len(samples), PART):
        frame = pd.DataFrame({"sample": samples[part]}).merge(places, how="cross")
        yield frame.assign(value=values[part].flatten().numpy())


def path_items(source: Source) -> list[tuple[str, tuple[Metric, FromPath]]]:
    """Return pooling and metric."""
    return [*product(source.pair_poolings, source.wanted(FromPath))]


def path_rows(
    source: Source, item: tuple[str, tuple[Metric, FromPath]]
) -> Iterator[Row]:
    """Yield how far each sample's vector goes from layer to layer, from layer 1 on."""
    pooling, (metric, how) = item
    columns = tuple(Column("raw", layer) for layer in source.run.layers)
    states = source.run.states(pooling, columns, source.rows)
    by_layer = how.measured(states).T
    for column, values in zip(columns[1:], by_layer, strict=True):
        yield source.row(metric.name, column, *mean(values), pooling=pooling)

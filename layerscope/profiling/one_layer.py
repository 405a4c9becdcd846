"""Rows of one layer each: metrics of tokens, of pooled states, and of what the model's head reads.

Metrics of tokens were computed in the pass, one value for each sample and layer: here they become
means. Metrics of pooled states take the vectors of all samples at once. What the head reads are
predictions by layer, which become accuracies and the layer from which they stay.
"""

from collections.abc import Iterable, Iterator
from itertools import product

import numpy as np
from torch import Tensor

from layerscope.metrics import factors
from layerscope.metrics.arrays import Estimate, mean
from layerscope.metrics.readings import FromReadings, Readings
from layerscope.profiling.source import Row, Source
from layerscope.runs.registry import Needs, about, is_scalar, parse_key
from layerscope.runs.states import OWN, Column


def value_items(needs: Needs, source: Source) -> list[str]:
    """Return the keys of the per-sample values of a kind, such as `curvature.raw`."""
    by_place = {}
    for key in filter(is_scalar, source.folder.sample_keys()):
        name, variant, site = parse_key(key)
        if about(name).needs == needs:
            by_place[name, variant or "", site] = key
    return [by_place[place] for place in sorted(by_place)]


def token_rows(source: Source, key: str) -> Iterator[Row]:
    """Yield mean and standard error of a per-sample value at each layer.

    Undefined ones are left out and counted.
    """
    values = source.folder.sample_values(key)[:, source.rows].double()
    if has_values(key, values):
        yield from rows_by_layer(source, key, map(mean, values))


def has_values(key: str, values: Tensor) -> bool:
    """Return whether a per-sample value is shown: a rare one is left out where it is zero everywhere.

    `values` are those of all layers and samples, or their means by layer.
    """
    name, *_ = parse_key(key)
    how = about(name).how
    is_rare = isinstance(how, factors.FromTokens) and how.rare
    return not is_rare or bool(values.any())


def rows_by_layer(
    source: Source, key: str, estimates: Iterable[Estimate]
) -> Iterator[Row]:
    """Yield the rows of a per-sample value from its mean at each layer of its site.

    The key names metric, variant and site: `prompt_entropy.alpha=1.raw`.
    """
    name, variant, site = parse_key(key)
    layers = source.run.layers_at(site)
    is_of_tokens = about(name).needs == "tokens"
    for layer, estimate in zip(layers, estimates, strict=False):
        # what is of blocks has no value at layer 0
        if is_of_tokens or estimate.n:
            yield source.row(name, Column(site, layer), *estimate, variant=variant)


def layer_items(source: Source) -> list[tuple[str, Column]]:
    """Return pooling and layer of all states kept.

    These are the layers 0..L and the last one after its norm, those inside the blocks, and, by the
    model's own pooling, those in the space that two towers share.
    """
    run = source.run
    pooled = product(source.poolings, [*run.columns, *run.sublayers])
    return [*pooled, *product([OWN], run.projected)]


def pooled_rows(source: Source, item: tuple[str, Column]) -> Iterator[Row]:
    """Yield every metric of the pooled states of a layer."""
    pooling, column = item
    states = source.run.states(pooling, (column,), source.rows)
    yield from rows_of_states(source, factors.StoredRows(states), pooling, column)


def rows_of_states(
    source: Source, states: factors.Rows, pooling: str, column: Column
) -> Iterator[Row]:
    """Yield every metric of the states of one layer.

    Those that are not defined for so few samples are left out.
    """
    cells: Row = {"n": states.count, "pooling": pooling}
    for metric, how in source.wanted(factors.FromRows):
        if how.lack(states.count, states.width) is not None:
            continue
        for variant, value in how.measured(states, source.options):
            yield source.row(metric.name, column, value, variant=variant, **cells)


def lens_items(_: Source) -> list[None]:
    """Return the one item of a table that is made at once."""
    return [None]


def lens_rows(source: Source, _: None) -> Iterator[Row]:
    """Yield accuracy and perplexity by layer where the answers are known, and where predictions stop changing.

    The head reads every sample, or some of its tokens; those of samples that are not finite are
    left out and counted.
    """
    folder = source.folder
    layers = source.run.layers
    samples = folder.originals
    finite = source.fine[samples.index]
    if "lens" in samples:  # the positions of the tokens that are read
        finite = np.repeat(finite, samples["lens"].map(len))
    keys = {"lens.prediction", "lens.target"}
    if source.run.info["model"]["language_model"]:
        keys.add("lens.nll")
    tensors = {}
    for key in keys & {*folder.sample_keys()}:
        tensors[key] = folder.sample_values(key)[..., finite]
    predictions = tensors.get("lens.prediction")
    if predictions is None or not predictions.shape[1]:
        return
    answers = tensors.get("lens.target")
    readings = Readings(predictions, answers, tensors.get("lens.nll"), layers)
    for metric, how in source.wanted(FromReadings):
        if how.compute is None:
            continue
        for i, estimate in how.compute(readings):
            column = Column(source.run.final, layers[i])
            yield source.row(metric.name, column, *estimate, total=len(finite))

"""What the samples' labels say of each layer: probes, and how the states of a class lie together.

A probe is fitted and judged by cross-validation, on samples of which none is a copy of another, and
says of each whether it is right: with these hits two layers can be compared sample by sample.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import torch

from layerscope.core import Reporter, processes
from layerscope.core.labels import is_target
from layerscope.metrics.arrays import slices
from layerscope.metrics.factors import BLOCK
from layerscope.metrics.neural_collapse import ClassSums, FromCollapse
from layerscope.probes.linear import linear_probe_hits
from layerscope.probes.ridge import ridge_probe_values
from layerscope.probes.scores import (
    FromLabels,
    FromScore,
    FromTarget,
    usable_classes,
)
from layerscope.profiling.source import FOLDS, Part, Row, Source, can_be_probed
from layerscope.runs.probed import HITS
from layerscope.runs.states import Column


def label_items(source: Source) -> list[tuple[str, int]]:
    """Return pooling and layer; nothing where there are no labels."""
    if "label" not in source.folder.plan:
        return []
    return [*product(source.poolings, source.run.layers)]


def label_rows(source: Source, item: tuple[str, int]) -> Iterator[Part]:
    """Yield what labels say of a layer, at the site that a truncated model would yield."""
    pooling, layer = item
    column = Column(source.run.final, layer)
    labels = source.folder.plan["label"].to_numpy()
    if can_be_probed(labels[source.probed]):
        yield from _probe_rows(source, labels[source.probed], pooling, column)
    if source.wanted(FromCollapse) and not is_target(labels):
        yield from _collapse_rows(source, labels[source.rows], pooling, column)


def _collapse_rows(
    source: Source, labels: np.ndarray, pooling: str, column: Column
) -> Iterator[Row]:
    """Yield the rows of neural collapse at a layer; none of a single class.

    Its states are read block by block, of which only sums are kept.
    """
    states = source.run.states(pooling, (column,), source.rows)
    names, classes = np.unique(labels, return_inverse=True)
    sums = ClassSums.empty(len(names), states.width)
    for block in slices(len(states), BLOCK):
        sums.update(states[block][:, 0], torch.from_numpy(classes[block]))
    collapse = sums.collapse()
    if collapse is None:
        return
    for metric, _ in source.wanted(FromCollapse):
        value = getattr(collapse, metric.name)
        yield source.row(metric.name, column, value, pooling=pooling)


def _probe_rows(
    source: Source, labels: np.ndarray, pooling: str, column: Column
) -> Iterator[Part]:
    """Yield the scores of probes at a layer, what stands beside them, and which samples they get right.

    `labels` are those of the probed samples.
    """
    rows = source.probed
    # probed samples, and those left out as copies or not finite; a sample above the most that are
    # probed counts for neither
    total = len(rows) + source.total - len(source.distinct)
    judged = source.sample[rows]
    if not is_target(labels):
        usable, *_ = usable_classes(labels, len(rows), FOLDS)
        judged = judged[usable]
    every = source.run.states(pooling, (column,), rows)
    states = every[:][:, 0]
    for metric, how in source.wanted(FromLabels):
        if isinstance(how, FromTarget) != is_target(labels):
            continue
        score = how.probe(states, labels, folds=FOLDS, seed=source.options.seed)
        cells: Row = {"pooling": pooling, "n": score.n, "total": total}
        yield source.row(metric.name, column, score.mean, score.stderr, **cells)
        for more, beside in source.wanted(FromScore):
            if metric.name in more.beside:
                yield source.row(more.name, column, beside.compute(score), **cells)
        hits = {
            "sample": judged,
            "metric": metric.name,
            "pooling": pooling,
            "layer": column.layer,
            "site": column.site,
            "value": np.asarray(score.right, dtype=np.float64),
            "variant": None,
        }
        yield HITS, pd.DataFrame(hits)


@dataclass(frozen=True)
class Hits:
    """What a probe makes of each sample at each layer `[N, layers]`, and the fold of each `[N]`.

    That is 1 or 0 for right or wrong, or of numbers to predict what a sample contributes to R².
    """

    values: np.ndarray
    fold: np.ndarray


def hits_by_layer(
    source: Source, labels: np.ndarray, pooling: str, reporter: Reporter
) -> Hits:
    """Return the hits of a probe at every layer, cross-validated on the same folds.

    `labels` are those of the probed samples. Layers are taken at the site that a truncated model
    yields; processes share them.
    """
    run = source.run
    name = "ridge probe"
    probe: Any = ridge_probe_values
    if not is_target(labels):
        name = "linear probe"
        probe = linear_probe_hits

    def judge(layer: int) -> Any:
        states = run.states(pooling, (Column(run.final, layer),), source.probed)
        return probe(states[:][:, 0], labels, FOLDS, source.options.seed)

    judgements = []
    bar = reporter.bar(f"{name} at every layer", len(run.layers), "layers")
    with bar as advance:
        for judgement in processes.team().each(judge, run.layers):
            judgements.append(judgement)
            advance(1)
    values = np.stack([hits for hits, *_ in judgements], 1)
    return Hits(values.astype(np.float64), judgements[0][1])

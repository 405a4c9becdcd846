"""What the samples' labels say of each layer: probes, and how the states of a class lie together."""

from collections.abc import Iterator
from itertools import product

import numpy as np
import pandas as pd
import torch

from layerscope.metrics.factors import BLOCK
from layerscope.metrics.neural_collapse import ClassSums, FromCollapse
from layerscope.probes.scores import FromLabels, FromScore, usable_classes
from layerscope.profiling.source import FOLDS, Row, Source, can_be_probed
from layerscope.runs.probed import HITS
from layerscope.runs.states import Column


def label_rows(source: Source) -> Iterator[Row]:
    """Yield what labels say by layer, at the site that a truncated model would yield."""
    if "label" not in source.folder.plan:
        return
    labels = source.folder.plan["label"].to_numpy()
    can_probe = can_be_probed(labels[source.probed])
    classes = torch.from_numpy(np.unique(labels[source.rows], return_inverse=True)[1])
    for pooling, layer in source.share(product(source.poolings, source.run.layers)):
        column = Column(source.run.final, layer)
        if can_probe:
            yield from _probe_rows(source, labels[source.probed], pooling, column)
        if source.wanted(FromCollapse):
            yield from _collapse_rows(source, classes, pooling, column)


def _collapse_rows(
    source: Source, classes: torch.Tensor, pooling: str, column: Column
) -> Iterator[Row]:
    """Yield the rows of neural collapse at a layer, whose states are read block by block; none of a single class."""
    states = source.run.states(pooling, (column,), source.rows)
    sums = ClassSums.empty(0, 1, states.width)
    for start in range(0, len(states), BLOCK):
        block = slice(start, start + BLOCK)
        sums.update(states[block].transpose(0, 1), classes[block])
    collapse = sums.collapse()
    if collapse is None:
        return
    for metric, _ in source.wanted(FromCollapse):
        yield source.row(
            metric.name, column, getattr(collapse, metric.name)[0], pooling=pooling
        )


def _probe_rows(
    source: Source, labels: np.ndarray, pooling: str, column: Column
) -> Iterator[Row]:
    """Yield the scores of probes at a layer, and keep each sample's."""
    rows = source.probed
    # probed samples, and those left out as copies or not finite; a sample above the most that are
    # probed counts for neither
    total = len(rows) + source.total - len(source.distinct)
    judged = source.sample[rows][usable_classes(labels, len(rows), FOLDS)[0]]
    states = source.run.states(pooling, (column,), rows)[:][:, 0]
    for metric, how in source.wanted(FromLabels):
        name, score = (
            metric.name,
            how.probe(states, labels, folds=FOLDS, seed=source.options.seed),
        )
        cells = {
            "metric": name,
            "pooling": pooling,
            "layer": column.layer,
            "site": column.site,
        }
        right = np.asarray(score.right, dtype=np.float64)
        source.keep(
            HITS,
            pd.DataFrame({"sample": judged, **cells, "value": right, "variant": None}),
        )
        yield source.row(
            name,
            column,
            score.mean,
            score.stderr,
            score.n,
            total=total,
            pooling=pooling,
        )
        for more, beside in source.wanted(FromScore):
            if name in more.beside:
                value = beside.compute(score)
                yield source.row(
                    more.name, column, value, n=score.n, total=total, pooling=pooling
                )

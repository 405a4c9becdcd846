"""How well each layer's states tell the labels: cross-validated probes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, product
from operator import itemgetter
from typing import Any

import numpy as np
import pandas as pd

from layerscope.probes.scores import FromLabels, FromScore, usable_classes
from layerscope.profiling.tables.source import Numbers, Row, Source, seeded
from layerscope.runs.states import Column

MOST = 5000
"""A probe is fitted on at most this many seeded samples."""
FOLDS = 5


def label_rows(source: Source) -> Iterator[Row]:
    """Yield probe accuracies by layer, at the site that a truncated model would yield, and keep each sample's."""
    plan, rows = source.folder.plan, probed_rows(source)
    left_out = source.total - len(source.distinct)
    if "label" not in plan or not can_be_probed(labels := plan["label"].to_numpy()[rows]):
        return
    total = len(rows) + left_out
    judged = source.sample[rows][usable_classes(labels, len(rows), FOLDS)[0]]
    parts: list[tuple[int, pd.DataFrame]] = []
    for pooling, layer in source.share(product(source.poolings, range(source.run.depth + 1))):
        column = Column(source.run.final, layer)
        states = source.run.states(pooling, (column,), rows)[:][:, 0]
        for metric, how in source.wanted(FromLabels):
            name, score = metric.name, how.probe(states, labels, folds=FOLDS, seed=source.options.seed)
            known = {"metric": name, "pooling": pooling, "layer": layer, "site": column.site}
            right = np.asarray(score.right, dtype=np.float64)
            parts.append((source.block, pd.DataFrame({"sample": judged, **known, "value": right})))
            yield source.row(name, column, score.mean, score.stderr, score.n, total=total, pooling=pooling)
            for more, beside in source.wanted(FromScore):
                if name in more.beside:
                    value = beside.compute(score)
                    yield source.row(more.name, column, value, n=score.n, total=total, pooling=pooling)
    found = sorted(chain(*source.team.meet(parts)), key=itemgetter(0))
    if source.team.leads and found:
        source.folder.write_table("samples.probes", (part.assign(variant=None) for _, part in found))


def probed_rows(source: Source) -> Numbers:
    """Return the plan's rows of the samples that are probed, in the order of the samples unless drawn."""
    rows: Numbers = seeded(source.distinct, MOST, [source.options.seed, 3])
    return rows


def can_be_probed(labels: Any) -> bool:
    """Return whether at least two classes have a member for every fold."""
    return bool((pd.Series(labels).value_counts() >= FOLDS).sum() >= 2)

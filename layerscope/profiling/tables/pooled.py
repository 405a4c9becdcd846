"""Metrics of the pooled states of all samples."""

from __future__ import annotations

from collections.abc import Iterator

from layerscope.metrics.factors.rows import FromRows, StoredRows
from layerscope.profiling.tables.source import Row, Source


def pooled_rows(source: Source) -> Iterator[Row]:
    """Yield every metric by layer; those that are not defined for so few samples are left out."""
    for pooling, column, states in source.layers():
        rows = StoredRows(states)
        for metric, how in source.wanted(FromRows):
            if how.lack(rows.count, rows.width) is None:
                for variant, value in how.measured(rows, source.options.alpha):
                    yield source.row(metric.name, column, value, variant=variant, pooling=pooling)

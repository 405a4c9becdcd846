"""Metrics of the pooled states of all samples: their spectrum, read in row blocks."""

from __future__ import annotations

from collections.abc import Iterator

from layerscope import metrics
from layerscope.metrics.arrays import unit_rows
from layerscope.metrics.spectrum import row_factor
from layerscope.profiling.tables.source import Row, Source


def pooled_rows(source: Source) -> Iterator[Row]:
    """Yield spectral metrics by layer from a D x D factor that has the singular values of all N rows."""
    for pooling, column, states in source.layers():
        if source.wants("dataset_entropy"):
            factor = row_factor(unit_rows(block[:, 0].double()) for block in states.blocks())
            for alpha in source.options.alpha:
                value = float(metrics.matrix_entropy(factor, alpha, rows="raw"))
                yield source.row("dataset_entropy", column, value, variant=f"alpha={alpha:g}", pooling=pooling)
        if source.wants("effective_rank"):
            factor = row_factor(block[:, 0].double() for block in states.blocks())
            yield source.row("effective_rank", column, float(metrics.effective_rank(factor)), pooling=pooling)

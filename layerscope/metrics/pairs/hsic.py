"""The unbiased Hilbert-Schmidt independence criterion, from sums."""

from torch import Tensor

from layerscope.core.errors import LayerscopeError


def check_rows(count: int) -> None:
    """Raise `LayerscopeError` for fewer than the 4 rows that HSIC_1 needs."""
    if count < 4:
        raise LayerscopeError(f"CKA over {count} rows is not defined: give at least 4 samples")


def hsic(inner: Tensor, diagonals: Tensor, trace_x: Tensor, trace_y: Tensor, count: int) -> Tensor:
    """Return HSIC_1 of two Grams with zero row sums, from sums that need no Gram in memory.

    `inner` is sum_ij K_ij L_ij, `diagonals` sum_i K_ii L_ii, `trace_x` and `trace_y` the traces, `count` N
    >= 4. Zero row sums turn the row sums without diagonal into minus the diagonal, so that N (N - 3) HSIC_1
    = inner - diagonals N / (N - 2) + trace_x trace_y / ((N - 1) (N - 2)).

    Source: Song et al. 2012, Feature selection via dependence maximization.
    """
    corrected = inner - diagonals * (count / (count - 2)) + trace_x * trace_y / ((count - 1) * (count - 2))
    return corrected / (count * (count - 3))

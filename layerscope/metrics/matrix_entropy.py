from torch import Tensor

from layerscope.metrics.arrays import (
    Array,
    as_finite64,
    as_result,
    centred,
    check_choice,
    unit_rows,
)
from layerscope.metrics.spectrum import (
    entropies,
    entropy_limit,
    entropy_of_spectrum,
    singular_values,
    small_gram,
)

ROWS = ("unit", "raw", "centered")


def scaled_rows(tokens: Tensor, rows: str) -> Tensor:
    """Return rows `[..., N, D]` at unit norm ("unit"), as they are ("raw"), or centred first ("centered").

    >>> scaled_rows(torch.tensor([[3.0, 0.0], [1.0, 0.0]]), "centered")
    tensor([[ 1.,  0.],
            [-1.,  0.]])
    """
    check_choice(rows, "rows", ROWS)
    if rows == "raw":
        return tokens
    if rows == "centered":
        tokens = centred(tokens)
    return unit_rows(tokens)


def entropy_of_rows(rows: Tensor, alpha: float) -> Tensor:
    """Return S_alpha `[...]` of rows `[..., N, D]` taken as they are, in their own precision.

    Orders below 1 weigh the smallest eigenvalues, which a Gram loses; they come from singular
    values.
    """
    if alpha < 1.0:
        return entropy_of_spectrum(singular_values(rows).square(), alpha)
    # Powers of the trace must not overflow, and an entropy does not know the scale.
    peak = rows.abs().amax((-2, -1), keepdim=True)
    return entropies([small_gram(rows / peak.masked_fill(peak == 0, 1.0))], alpha)[0]


def matrix_entropy(
    Z: Array, alpha: float = 1.0, rows: str = "unit", normalization: str | None = None
) -> float | Tensor:
    """Return the matrix-based Rényi entropy S_alpha of the Gram matrix Z Z^T / tr(Z Z^T).

    `Z` is `[..., N, D]`; the value `[...]` is in nats, 0 ... log min(N, D). `rows` scales the rows
    to unit norm ("unit"), leaves them ("raw"), or subtracts the mean row and then scales
    ("centered"); a zero row stays zero, and all-zero rows have entropy 0. `normalization` divides
    by log N ("logN"), log D ("logD") or log min(N, D) ("max"). alpha is above 0; 1 is the von
    Neumann entropy, 2 needs no eigenvalues.

    exp(S_1 of raw rows) <= `effective_rank` <= min(N, D): squaring concentrates a spectrum. Theorem
    1 of the paper prints the first inequality the other way round, which holds for flat spectra
    alone.

    Source: Skean et al. 2025, Layer by Layer, equation 1 (raw rows); Giraldo, Rao and Principe
    2014.

    >>> round(matrix_entropy(np.eye(4)), 4)  # ln 4
    1.3863
    """
    matrix = as_finite64(Z, "Z")
    value = entropy_of_rows(scaled_rows(matrix, rows), alpha)
    return as_result(value / entropy_limit(normalization, *matrix.shape[-2:]))

"""Coefficients of correlation between many pairs of rows at once, as a bootstrap needs them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from layerscope.errors import LayerscopeError

Floats = npt.NDArray[np.float64]
FEWEST = 3
"""A correlation of fewer points is NaN."""


def pearson(x: Floats, y: Floats) -> Floats:
    """Return Pearson's r of each row of `x` with the same row of `y`, both `[…, n]`; NaN where a row is constant."""
    a, b = (_centred(rows) for rows in np.broadcast_arrays(x, y))
    with np.errstate(invalid="ignore", divide="ignore"):
        r = (a * b).sum(-1) / np.sqrt((a * a).sum(-1) * (b * b).sum(-1))
    return np.asarray(np.clip(r, -1, 1), dtype=np.float64)


def spearman(x: Floats, y: Floats) -> Floats:
    """Return Spearman's ρ row by row: Pearson's r of the ranks, ties at their mean rank."""
    from scipy.stats import rankdata

    return pearson(rankdata(x, axis=-1), rankdata(y, axis=-1))


def kendall(x: Floats, y: Floats) -> Floats:
    """Return Kendall's τ-b row by row."""
    first, second = np.triu_indices(x.shape[-1], 1)
    a = np.sign(x[..., first] - x[..., second])
    b = np.sign(y[..., first] - y[..., second])
    with np.errstate(invalid="ignore", divide="ignore"):
        tau = (a * b).sum(-1) / np.sqrt((a * a).sum(-1) * (b * b).sum(-1))
    return np.asarray(np.clip(tau, -1, 1), dtype=np.float64)


def distance_correlation(x: Floats, y: Floats) -> Floats:
    """Return the distance correlation row by row (Székely, Rizzo, Bakirov 2007): 0 … 1, 0 where a row is constant.

    It has no sign, and with few points it is well above 0 for independent data too.
    """
    try:
        import dcor
    except ImportError as error:
        raise LayerscopeError(
            "distance correlation needs dcor: pip install 'layerscope[evaluation]', or leave it out of the statistics"
        ) from error
    a, b = np.broadcast_arrays(x, y)
    n = a.shape[-1]
    if not a.size:  # dcor looks at the first row
        return np.zeros(a.shape[:-1])
    rows = dcor.rowwise(dcor.distance_correlation, a.reshape(-1, n).copy(), b.reshape(-1, n).copy())
    return np.asarray(rows, dtype=np.float64).reshape(a.shape[:-1])


STATISTICS: dict[str, Callable[[Any, Any], Floats]] = {
    "spearman": spearman,
    "kendall": kendall,
    "pearson": pearson,
    "dcor": distance_correlation,
}


def _centred(rows: Floats) -> Floats:
    """Return rows less their mean; a constant row is exactly 0, whatever its mean was rounded to."""
    centred = rows - rows.mean(-1, keepdims=True)
    constant = (rows == rows[..., :1]).all(-1, keepdims=True)
    return np.where(constant, 0.0, centred)

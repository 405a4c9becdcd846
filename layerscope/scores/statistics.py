"""Coefficients of correlation between many pairs of rows at once, as a bootstrap needs them.

Each takes x `[…, n]` and y `[…, n]`, whose leading dimensions fit, and correlates every row of x
with the same row of y. A thousand resamples of the scores of 12 layers, [1000, 12], against one
metric, [1, 12], are one call.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def pearson(x: Floats, y: Floats) -> Floats:
    """Return Pearson's r row by row; NaN where a row is constant.

    >>> pearson(np.array([[1.0, 2.0, 3.0]]), np.array([[3.0, 2.0, 1.0], [0.0, 0.5, 1.0]]))
    array([-1.,  1.])
    """
    return _cosine(*map(_centred, np.broadcast_arrays(x, y)))


def spearman(x: Floats, y: Floats) -> Floats:
    """Return Spearman's ρ row by row: Pearson's r of the ranks, ties at their mean rank.

    >>> spearman(np.array([1.0, 2.0, 3.0]), np.array([1.0, 4.0, 9.0]))
    array(1.)
    """
    from scipy.stats import rankdata

    return pearson(rankdata(x, axis=-1), rankdata(y, axis=-1))


def kendall(x: Floats, y: Floats) -> Floats:
    """Return Kendall's τ-b row by row.

    >>> kendall(np.array([1.0, 2.0, 3.0]), np.array([1.0, 3.0, 2.0])).round(3)
    np.float64(0.333)
    """
    first, second = np.triu_indices(x.shape[-1], 1)
    return _cosine(*(np.sign(rows[..., first] - rows[..., second]) for rows in (x, y)))


def _cosine(a: Floats, b: Floats) -> Floats:
    """Return the cosine of each row of `a` with the same row of `b`.

    It is NaN where one is zero.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        r = (a * b).sum(-1) / np.sqrt((a * a).sum(-1) * (b * b).sum(-1))
    return np.asarray(np.clip(r, -1, 1), dtype=np.float64)


def distance_correlation(x: Floats, y: Floats) -> Floats:
    """Return the distance correlation row by row (Székely, Rizzo, Bakirov 2007): 0 … 1, 0 where a row is constant.

    It has no sign, and with few points it is well above 0 for independent data too. It takes n²
    numbers a row.

    >>> distance_correlation(np.array([1.0, 2.0, 3.0]), np.array([2.0, 4.0, 6.0]))
    array(1.)
    """
    a, b = (_centred_distances(rows) for rows in (x, y))
    covariance = (a * b).mean((-2, -1))
    scale = np.sqrt((a * a).mean((-2, -1)) * (b * b).mean((-2, -1)))
    with np.errstate(invalid="ignore", divide="ignore"):
        squared = np.clip(covariance / scale, 0, 1)
    return np.where(scale > 0, np.sqrt(squared), 0.0)


def _centred_distances(rows: Floats) -> Floats:
    """Return the distances `[…, n, n]` of the points of each row, less the means of their rows and columns."""
    apart = np.abs(rows[..., :, None] - rows[..., None, :])
    means = apart.mean(-1)
    whole = means.mean(-1)[..., None, None]
    return np.asarray(apart - means[..., :, None] - means[..., None, :] + whole)


Statistic = Callable[[Any, Any], Floats]
STATISTICS: dict[str, Statistic] = {
    "spearman": spearman,
    "kendall": kendall,
    "pearson": pearson,
    "dcor": distance_correlation,
}


def _centred(rows: Floats) -> Floats:
    """Return rows less their mean.

    A constant row is exactly 0, whatever its mean was rounded to.
    """
    centred = rows - rows.mean(-1, keepdims=True)
    constant = (rows == rows[..., :1]).all(-1, keepdims=True)
    return np.where(constant, 0.0, centred)

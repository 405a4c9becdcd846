"""Scores of layers and of the baseline on the same units, and the rules that choose by them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from layerscope.core.errors import LayerscopeError

Floats = npt.NDArray[np.float64]
SURE = 2.0
"""Standard errors that a loss must stay below its bound to be called certain."""
SHIPPED = "the model as shipped"
LAST = "the last layer"
"""What stands in for a model as shipped that was not scored."""


@dataclass(frozen=True)
class Scored:
    """Scores `[units, layers + 1]`; units are the same for all, samples or tasks, the last column is the baseline.

    `errors` `[layers + 1]` are standard errors of the means, NaN where unknown. `blocks` `[units]` numbers what is held
    out together, None where nothing can be; `weights` `[units]` are those of the means, None where all are equal.
    `basis` says how much was judged, `lacking` what is missing for a choice. `held` are the scores of units that have
    no part in choosing, `by_task` those of each task alone.
    """

    layers: tuple[int, ...]
    values: Floats
    errors: Floats
    unit: Literal["sample", "task"]
    title: str
    blocks: npt.NDArray[np.int64] | None = None
    weights: Floats | None = None
    basis: str = ""
    lacking: str = ""
    held: Scored | None = None
    by_task: tuple[Scored, ...] = ()
    baseline_name: str = SHIPPED

    @property
    def baseline(self) -> int:
        """Column of the baseline."""
        return len(self.layers)

    @property
    def means(self) -> Floats:
        """Mean score by column."""
        return np.asarray(np.average(self.values, axis=0, weights=self.weights), dtype=np.float64)

    def without(self, block: int) -> Scored:
        """Return the scores of all units but those of one block."""
        kept = self.blocks != block
        weights = None if self.weights is None else self.weights[kept]
        return replace(self, values=self.values[kept], blocks=None, weights=weights)

    @property
    def share(self) -> bool:
        """Whether scores are shares, shown in percent."""
        return bool(np.abs(self.values).max() <= 1)

    @property
    def points(self) -> int:
        """How many points one unit of the scores is: 100 for shares, else 1."""
        return 100 if self.share else 1

    def difference(self, one: int, two: int) -> tuple[float, float]:
        """Return the mean difference of two columns, and its standard error.

        It is paired over units where there are two or more; of one unit it is that of independent scores, which is
        too large where both were judged on the same items; NaN where no error is known.
        """
        apart = self.values[:, one] - self.values[:, two]
        if one == two:
            return 0.0, 0.0
        if len(apart) > 1:
            return mean_of(apart, self.weights)
        return float(apart[0]), float(np.hypot(self.errors[one], self.errors[two]))

    def loss(self, column: int) -> float:
        """Return what a column loses against the baseline."""
        return -self.difference(column, self.baseline)[0]


def mean_of(values: Floats, weights: Floats | None) -> tuple[float, float]:
    """Return the mean of two values or more, and its standard error, with weights where these are given."""
    shares = np.full(len(values), 1 / len(values)) if weights is None else weights / weights.sum()
    mean, n = float(shares @ values), len(values)
    return mean, math.sqrt(n / (n - 1) * float(np.square(shares) @ np.square(values - mean)))


def best_of(scored: Scored, columns: Sequence[int]) -> int:
    """Return the column of the highest mean score; of a tie the shallowest."""
    return columns[int(np.argmax(scored.means[list(columns)]))]


def one_standard_error(scored: Scored, columns: Sequence[int]) -> int:
    """Return the shallowest column whose score is within one standard error of the best; `columns` by depth.

    The error is that of the paired difference to the best, where there are two units or more: a layer that is worse on
    nearly every sample counts as worse though both have wide errors of their own. Of one task it is the
    standard error of the best score.

    Source: Breiman et al. 1984, Classification and regression trees, section 3.4.3, with the difference paired.
    """
    best = best_of(scored, columns)
    for column in columns:
        difference, error = scored.difference(column, best)
        error = error if len(scored.values) > 1 else float(scored.errors[best])
        if -difference <= (error if math.isfinite(error) else 0) + 1e-12:
            return column
    return best


BY_SCORE: dict[str, Callable[[Scored, Sequence[int]], int]] = {
    "one-standard-error": one_standard_error,
    "best": best_of,
}


def within_loss(scored: Scored, columns: Sequence[int], most: float) -> list[int]:
    """Return the columns that lose at most `most` against the baseline; raises where there is none."""
    kept = [column for column in columns if scored.loss(column) <= most + 1e-12]
    if kept:
        return kept
    nearest = best_of(scored, columns)
    raise LayerscopeError(
        f"no layer that may be chosen loses at most {most * scored.points:g} points: the least is "
        f"{scored.loss(nearest) * scored.points:.2f} (layer {scored.layers[nearest]})"
    )

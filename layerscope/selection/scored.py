"""Scores of layers and of the baseline on the same units, samples or tasks, and the rules that choose by them.

Every rule reads one matrix, a row a unit and a column a layer, the baseline last. Of a probe the
units are samples, right (1) or wrong (0):

    sample   layer 1   layer 2   as shipped
    0           1         1          1
    1           0         1          1
    2           1         1          0

Layer 2 is ahead of the model as shipped by 1/3. The standard error of that is the one of the
column of differences (0, 0, 1): layers that fail on the same samples are told apart by far fewer of
them than their own errors would suggest.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from layerscope.core import LayerscopeError
from layerscope.core.margin import differs
from layerscope.scores.shifts import Floats, mean_of

SHIPPED = "the model as shipped"
LAST = "the last layer"
"""What stands in for a model as shipped that was not scored."""


@dataclass(frozen=True)
class Scored:
    """Scores `[units, layers + 1]`; units are the same for all, samples or tasks, the last column is the baseline.

    `errors` `[layers + 1]` are standard errors of the means, NaN where unknown. `blocks` `[units]`
    numbers what is held out together, None where nothing can be. `basis` says how much was judged,
    `lacking` what is missing for a choice.
    """

    layers: tuple[int, ...]
    values: Floats
    errors: Floats
    unit: Literal["sample", "task"]
    title: str
    blocks: npt.NDArray[np.int64] | None = None
    basis: str = ""
    lacking: str = ""
    baseline_name: str = SHIPPED

    @property
    def baseline(self) -> int:
        """Column of the baseline."""
        return len(self.layers)

    @property
    def means(self) -> Floats:
        """Mean score by column."""
        return np.asarray(self.values.mean(0))

    @property
    def share(self) -> bool:
        """Whether scores are shares, shown in percent; the values of single samples may lie beyond."""
        return bool(np.abs(self.means).max() <= 1)

    def difference(self, one: int, two: int) -> tuple[float, float]:
        """Return the mean difference of two columns, and its standard error.

        It is paired over units, but for one or two tasks, which are too few for a spread: there it
        is that of independent scores, which is too large where both were judged on the same items;
        NaN where no error is known.
        """
        if one == two:
            return 0.0, 0.0
        if self.baseline in (one, two):
            column = min(one, two)
            # with the same score on every unit the last layer is the model as shipped
            is_last = self.layers[column] == max(self.layers)
            if is_last and self.equals_baseline(column):
                return 0.0, 0.0
        differences = self.values[:, one] - self.values[:, two]
        fewest = {"sample": 2, "task": 3}
        if len(differences) >= fewest[self.unit]:
            return mean_of(differences)
        error = np.hypot(self.errors[one], self.errors[two])
        return float(differences.mean()), float(error)

    def equals_baseline(self, column: int) -> bool:
        """Return whether a column has the scores of the baseline."""
        column_values = self.values[:, column]
        baseline = self.values[:, -1]
        return bool(np.allclose(column_values, baseline, rtol=0, atol=1e-12))

    def is_within(self, column: int, best: int) -> bool:
        """Return whether a column does not differ measurably from the best."""
        return differs(*self.difference(column, best)) is False


def best_of(scored: Scored, columns: Sequence[int]) -> int:
    """Return the column of the highest mean score; of a tie the shallowest."""
    return columns[int(np.argmax(scored.means[list(columns)]))]


def best_if_clear(scored: Scored, columns: Sequence[int]) -> int:
    """Return the column of the highest mean score, or the baseline where that does not differ measurably from it."""
    best = best_of(scored, columns)
    if scored.baseline in columns and scored.is_within(scored.baseline, best):
        return scored.baseline
    return best


def in_points(most: float) -> str:
    """Return `1 point`, `0.5 points`."""
    if most == 1:
        return "1 point"
    return f"{most:g} points"


def within_loss(
    scored: Scored, columns: Sequence[int], most: float | None
) -> Sequence[int]:
    """Return the columns that lose at most `most` points against the baseline, None being no bound.

    Raises where there is none.
    """
    if most is None:
        return columns
    points = 100 if scored.share else 1
    means = scored.means
    losses = means[-1] - means[list(columns)]
    kept = np.flatnonzero(losses <= most / points + 1e-12)
    if len(kept):
        return [columns[i] for i in kept.tolist()]
    # the baseline, which loses nothing, is not among them
    layer = scored.layers[best_of(scored, columns)]
    raise LayerscopeError(
        f"no layer that may be chosen loses at most {in_points(most)}: the least is "
        f"{losses.min() * points:.2f} (layer {layer})"
    )


def of_samples(values: Floats, title: str, layers: Sequence[int]) -> Scored:
    """Return the scores of samples, such as 1 for a right one, at each of the layers and at the baseline."""
    errors = values.std(0) / math.sqrt(len(values))
    return Scored(tuple(layers), values, errors, "sample", title)

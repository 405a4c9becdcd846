"""Thresholds for early exit with a finite-sample guarantee: fixed-sequence testing with exact binomial tails.

The guarantee is for new data like the calibration data: rows drawn independently from the same
source (exchangeable). The exits may not have been chosen on the rows that are tested; `split` keeps
some apart for that.

Source: Angelopoulos et al. 2021, Learn then Test: Calibrating Predictive Algorithms to Achieve Risk
Control.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit
from scipy.stats import binom

from layerscope.core import LayerscopeError, Whole
from layerscope.early_exit.options import Goal, percent
from layerscope.early_exit.predictions import NEVER, Floats, Numbers, Recorded

HIGHEST = 32.0
"""Highest log-odds of a threshold: a float64 score resolves steps up to 1 − 1e-14."""
STEP = 0.05
"""Distance of neighbouring thresholds in log-odds."""
DESIGN = 0.2
"""The share of the samples that chooses exits; the others are tested."""
SHOWN = 9
"""Thresholds of a curve beside the one that was chosen."""


def least_samples(goal: Goal) -> int:
    """Return the least n with which a threshold that exits can be certified, by no error: (1 − risk)ⁿ ≤ δ."""
    exact = math.log(goal.delta) / math.log1p(-goal.max_disagreement)
    n = max(1, math.ceil(exact) - 1)
    # the logarithms may round to either side
    while p_value(0, n, goal.max_disagreement) > goal.delta:
        n += 1
    return n


def check_enough(n: int, goal: Goal) -> None:
    """Raise `LayerscopeError` where `n` samples cannot certify any threshold that exits, with how many can."""
    if n < (least := least_samples(goal)):
        raise LayerscopeError(
            f"{goal} needs {least:,} samples at least, and there are {n:,}: give more"
        )


def p_value(errors: ArrayLike, n: int, risk: float) -> Floats:
    """Return P(Bin(n, risk) ≤ errors): how likely it is to see so few errors where the risk is larger."""
    return np.asarray(binom.cdf(errors, n, risk), dtype=np.float64)


def split(n: int, goal: Goal, seed: int = 0) -> tuple[Numbers, Numbers]:
    """Return the rows that choose exits, a seeded fifth of `n`, and the others, which are tested."""
    least = least_samples(goal)
    tested = n - math.ceil(n * DESIGN)
    if tested < least:
        needed = math.ceil(least / (1 - DESIGN)) - 1
        while needed - math.ceil(needed * DESIGN) < least:
            needed += 1
        raise LayerscopeError(
            f"of {n:,} samples {tested:,} would be tested, and {goal} needs {least:,}: give {needed:,} in all"
        )
    rows = np.random.default_rng(seed).permutation(n).astype(np.int64)
    return np.sort(rows[: n - tested]), np.sort(rows[n - tested :])


@dataclass(frozen=True)
class Calibration:
    """A threshold for some exits, and the evidence for it on `n` samples.

    `exits` are layers 1 … L − 1 in order; a sample leaves at the first whose score reaches
    `threshold` (`NEVER`: infinity, where no threshold of the path could be certified, which meets
    the goal too). `errors` counts predictions that differ from the full
    model's. `p_value` is P(Bin(n, α) ≤ errors) for the goal's α. `tested` counts the
    thresholds that were tested, with the one that failed. `mean_layer`, `disagreement`, `accuracy`
    and `full_accuracy` (the full model's; both None without labels) are what was seen on these
    samples, leaving at the threshold. `fingerprint` names the weights, `dtype` their precision.

    >>> saved = layerscope.open_exit_report("tiny-exits").calibration  # its fields
    >>> saved["depth"], saved["errors"] <= saved["n"]
    (3, True)
    """

    exits: tuple[int, ...]
    threshold: float
    depth: int
    goal: Goal
    n: int
    errors: int
    p_value: float
    tested: int
    mean_layer: float
    disagreement: float
    accuracy: float | None = None
    full_accuracy: float | None = None
    fingerprint: str = ""
    dtype: str = ""

    def __str__(self) -> str:
        """Return the guarantee in one line of plain words."""
        goal = self.goal
        sure = f"with {percent(self.goal.confidence)} confidence"
        if not self.tested:
            return "no sample leaves early: no exit is checked"
        most = f"at most {percent(goal.max_disagreement)}"
        if self.threshold == NEVER:
            return f"no sample leaves early: no threshold was certified for {most} disagreement {sure} (n = {self.n:,})"
        differ = f"{self.errors:,} of {self.n:,} did"
        if self.mean_layer == self.depth:
            differ = f"{differ}; no sample left early"
        return f"{most} of predictions on new samples like these differ from the full model's, {sure} ({differ})"


def threshold_path(classes: int, exits: Sequence[int]) -> tuple[float, ...]:
    """Return the thresholds that are tested, the most careful first; no data decides them.

    Evenly spaced in the log-odds of the score, from 1 down to 1 / K, the least that K classes allow.
    """
    if not exits:
        return ()
    lowest = -math.log(classes - 1)
    grid = expit(np.arange(HIGHEST, lowest + STEP / 2, -STEP))
    return (1.0, *grid.tolist(), 1 / classes)


def along(
    recorded: Recorded,
    exits: Sequence[int],
    thresholds: Sequence[float],
    values: NDArray[Any],
) -> Floats:
    """Return for each of T descending thresholds the sum over samples of a value at the layer they leave at, [T].

    `values` `[N, E + 1]` holds each sample's value at every exit and, last, at layer L. A sample's
    layer changes only where the threshold passes the running maximum of its scores: time N·E·log T,
    and nothing of the size N·T is held.
    """
    # from the first threshold that a sample's running maximum reaches, an exit's value replaces the
    # next one's
    highest = np.maximum.accumulate(recorded.scores_at(exits), axis=1)
    careful = -np.asarray(thresholds, dtype=np.float64)
    first = np.searchsorted(careful, -highest).ravel()
    change = -np.diff(values.astype(np.float64), axis=1).ravel()
    changes = np.bincount(first, weights=change, minlength=len(careful) + 1)
    changes[0] += values[:, -1].sum()
    sums: Floats = changes.cumsum()[:-1]
    return sums


def errors_along_path(
    recorded: Recorded, exits: Sequence[int]
) -> tuple[tuple[float, ...], Floats]:
    """Return the thresholds from never leaving on, T in all, and how many predictions are not the full model's, [T]."""
    thresholds = (NEVER, *threshold_path(recorded.classes, exits))
    columns = [layer - 1 for layer in (*exits, recorded.depth)]
    wrong = recorded.predictions[:, columns] != recorded.full[:, None]
    return thresholds, along(recorded, exits, thresholds, wrong)


def affordable_threshold(
    recorded: Recorded, exits: Sequence[int], tested: int, goal: Goal
) -> float:
    """Return the greediest threshold with the share of errors that as many samples as are `tested` may have."""
    errors = np.arange(tested + 1)
    p_values = p_value(errors, tested, goal.max_disagreement)
    most = errors[p_values <= goal.delta].max() / tested
    thresholds, wrong = errors_along_path(recorded, exits)
    meets = np.cumprod(wrong <= most * len(recorded)).sum()
    return thresholds[int(meets) - 1]


def calibrate_recorded(
    recorded: Recorded, exits: Sequence[int], goal: Goal, **weights: str
) -> Calibration:
    """Return the greediest threshold of the path that is certified to meet the goal, before the first that is not.

    Fixed-sequence testing; where none can be certified it is `NEVER`. `weights` are its
    `fingerprint` and `dtype`.
    """
    exits = check_exits(exits, recorded.depth)
    n = len(recorded)
    check_enough(n, goal)
    thresholds, errors = errors_along_path(recorded, exits)
    p_values = p_value(errors, n, goal.max_disagreement)
    # never leaving has no errors, and the samples are enough to certify that
    certified = int(np.cumprod(p_values <= goal.delta).sum())
    threshold = thresholds[certified - 1]
    leaving = recorded.leaves(exits, threshold)
    return Calibration(
        exits,
        threshold,
        recorded.depth,
        goal,
        n,
        errors=int(errors[certified - 1]),
        p_value=float(p_values[certified - 1]),
        tested=min(certified, len(thresholds) - 1),
        mean_layer=float(leaving.mean()),
        disagreement=recorded.disagreement(leaving),
        accuracy=recorded.accuracy(leaving),
        full_accuracy=recorded.accuracy(recorded.whole),
        **weights,
    )


def check_exits(exits: Iterable[Any], depth: int) -> tuple[int, ...]:
    """Return exits in order; raises `LayerscopeError` where one is not a layer 1 … L − 1, or is named twice."""
    layers = list(exits) if isinstance(exits, Iterable) else [exits]
    for layer in layers:
        if not Whole(1, depth - 1).fits(layer):
            raise LayerscopeError(
                f"exit {layer!r} does not exist: give layers from 1 on, before the last of {depth}"
            )
    if len({*layers}) < len(layers):
        raise LayerscopeError(f"exits {layers} name a layer twice: name each once")
    return tuple(sorted(map(int, layers)))


def thresholds_shown(
    recorded: Recorded, exits: Sequence[int], chosen: float
) -> tuple[float, ...]:
    """Return some thresholds, descending: evenly spaced in the depth that samples reach, with the chosen one."""
    path = threshold_path(recorded.classes, exits)
    if not path:
        return (chosen,)
    shape = (len(recorded), len(exits) + 1)
    layers = np.broadcast_to([*exits, recorded.depth], shape)
    reached = along(recorded, exits, path, layers)
    depths = np.linspace(reached[0], reached[-1], SHOWN)
    shown = {chosen}
    for depth in depths:
        nearest = np.abs(reached - depth).argmin()
        shown.add(path[int(nearest)])
    return tuple(sorted(shown, reverse=True))

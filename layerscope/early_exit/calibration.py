"""Thresholds for early exit with a finite-sample guarantee: fixed-sequence testing with exact binomial tails.

The guarantee is for new data like the calibration data: rows drawn independently from the same source (exchangeable).
Neither the exits nor the criterion may have been chosen on the rows that are tested; `split` keeps some apart for that.

Source: Angelopoulos et al. 2021, Learn then Test: Calibrating Predictive Algorithms to Achieve Risk Control.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from layerscope.core.errors import LayerscopeError
from layerscope.early_exit.criteria import NEVER, check_criterion
from layerscope.early_exit.guarantee import Goal, check_enough, p_value, percent, upper_bound
from layerscope.early_exit.recorded import Recorded

HIGHEST, LOWEST, STEP = 32.0, -7.0, 0.05
"""The log-odds of the thresholds: a float64 score tells steps apart up to 1 − 1e-14, and 0.001 is next to nothing."""


@dataclass(frozen=True)
class Calibration:
    """A threshold for some exits, and the evidence for it on `n` samples.

    `exits` are layers 1 … L − 1 in order; a sample leaves at the first whose score reaches `threshold` (`NEVER`:
    infinity, where no threshold of the path could be certified, which meets the goal too). `errors` counts what the
    goal is about: predictions that differ from the full model's, or that are wrong. `p_value` is P(Bin(n, risk) ≤
    errors). `tested` counts the thresholds that were tested, with the one
    that failed. `mean_layer`, `disagreement`, `accuracy` and `full_accuracy` (the full model's; both None without
    labels) are what was seen on these samples, leaving at the threshold. `fingerprint` names the weights, `dtype`
    their precision.

    >>> from layerscope.early_exit import Calibration, ExitModel, calibrate
    >>> found = calibrate(ExitModel("tiny-bert", exits=[1, 2]), "reviews.csv", max_disagreement=0.3, progress=False)
    >>> found.exits, found.n, Calibration.from_json(found.to_json()) == found
    ((1, 2), 24, True)
    """

    criterion: str
    exits: tuple[int, ...]
    threshold: float
    depth: int
    classes: int
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

    @property
    def told(self) -> str:
        """The guarantee in one line of plain words."""
        sure = f"with {percent(self.goal.confidence)} confidence"
        none = "; no sample left early" if self.mean_layer == self.depth else ""
        if self.goal.min_accuracy is not None:
            right = (
                f"at least {percent(self.goal.min_accuracy)} of predictions on new samples like these are right, {sure}"
            )
            return f"{right} ({self.n - self.errors:,} of {self.n:,} were{none})"
        most = f"at most {percent(self.goal.risk)}"
        if not self.tested:
            return "no sample leaves early: no exit is checked"
        if self.threshold == NEVER:
            return f"no sample leaves early: no threshold was certified for {most} disagreement {sure} (n = {self.n:,})"
        differ = f"{most} of predictions on new samples like these differ from the full model's, {sure}"
        return f"{differ} ({self.errors:,} of {self.n:,} did{none})"

    def to_json(self) -> str:
        """Return the calibration as JSON; never leaving is a threshold of null."""
        threshold = None if self.threshold == NEVER else self.threshold
        return json.dumps({**asdict(self), "threshold": threshold}, indent=2, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Calibration:
        """Return a calibration from what `to_json` gave; raises `LayerscopeError` for any other text."""
        try:
            told = json.loads(text)
            if not isinstance(told, dict) or set(told) != {field.name for field in fields(cls)}:
                raise LayerscopeError("its fields are others")
            threshold = NEVER if told["threshold"] is None else told["threshold"]
            parts = {"goal": Goal(**told["goal"]), "exits": tuple(told["exits"]), "threshold": threshold}
            found = cls(**{**told, **parts})
            _check_figures(found)
        except (ValueError, TypeError, ArithmeticError, RecursionError) as error:
            reason = (str(error).splitlines() or [""])[0]
            raise LayerscopeError(f"this is not the JSON of a calibration ({reason}): calibrate again") from error
        return found


def path(criterion: str, classes: int, exits: Sequence[int]) -> tuple[float, ...]:
    """Return the thresholds that are tested, the most careful first; no data decides them.

    Evenly spaced in the log-odds of the score, from a score of 1 down to the least there is: 1/K for "confidence", 0
    for "margin" and "entropy". For "patience" whole numbers from E − 1, the most exits in a row that can agree with the
    one before, down to 1. Never leaving comes before all of them and is not among them.
    """
    check_criterion(criterion)
    if not exits:
        return ()
    if criterion == "patience":
        return tuple(float(agreeing) for agreeing in range(len(exits) - 1, 0, -1))
    lowest, least = (-math.log(classes - 1), 1 / classes) if criterion == "confidence" else (LOWEST, 0.0)
    grid = expit(np.arange(HIGHEST, lowest + STEP / 2, -STEP))
    return (1.0, *grid.tolist(), least)


def along(
    recorded: Recorded, exits: Sequence[int], thresholds: Sequence[float], values: NDArray[Any]
) -> NDArray[np.float64]:
    """Return for each of T descending thresholds the sum over samples of a value at the layer they leave at, [T].

    `values` `[N, E + 1]` holds each sample's value at every exit and, last, at layer L. A sample's layer changes only
    where the threshold passes the running maximum of its scores, so that each exit adds its change at one place of the
    thresholds: time N·E·log T, and nothing of the size N·T is held.
    """
    # from the first threshold that a sample's running maximum reaches, an exit's value replaces the next one's
    highest = np.maximum.accumulate(recorded.scores_at(exits), axis=1)
    careful = -np.asarray(thresholds, dtype=np.float64)
    changes = np.zeros(len(careful) + 1)
    changes[0] = values[:, -1].sum()
    for place in range(len(exits)):
        change = values[:, place].astype(np.float64) - values[:, place + 1]
        first = np.searchsorted(careful, -highest[:, place], side="left")
        changes += np.bincount(first, weights=change, minlength=len(changes))
    sums: NDArray[np.float64] = changes.cumsum()[:-1]
    return sums


def calibrate_recorded(recorded: Recorded, exits: Sequence[int], goal: Goal) -> Calibration:
    """Return the greediest threshold of the path that is certified to meet the goal, before the first that is not.

    Fixed-sequence testing: with probability `goal.confidence` over the draw of these samples, the risk of leaving at
    the threshold is within the goal on new data like them (exchangeable with them), if neither exits nor criterion
    were chosen on them. A disagreement that cannot be certified for any threshold gives `NEVER`.

    Raises:
        LayerscopeError: for exits that are not layers 1 … L − 1, scores that are not finite, too few samples for the
            goal, labels that are missing, and an accuracy that the full model itself is not certified to have.

    """
    layers = check_exits(exits, recorded.depth)
    _check_recorded(recorded, goal)
    thresholds = (NEVER, *path(recorded.criterion, recorded.classes, layers))
    wanted = recorded.full if goal.max_disagreement is not None else recorded.labels
    assert wanted is not None
    at = np.asarray([*layers, recorded.depth], dtype=np.int64) - 1
    errors = along(recorded, layers, thresholds, recorded.predictions[:, at] != wanted[:, None])
    p_values = p_value(errors, len(recorded), goal.risk)
    failed = np.flatnonzero(p_values > goal.delta)
    first = int(failed[0]) if len(failed) else len(thresholds)
    if first == 0:  # only an accuracy: never leaving has no disagreement, and the samples are enough for that
        raise LayerscopeError(_not_reached(int(errors[0]), len(recorded), goal))
    kept = first - 1
    return _calibration(recorded, layers, goal, thresholds[kept], int(errors[kept]), min(first, len(thresholds) - 1))


def check_exits(exits: Sequence[int], depth: int) -> tuple[int, ...]:
    """Return exits in order; raises `LayerscopeError` where one is not a layer 1 … L − 1, or is named twice."""
    if not isinstance(exits, Iterable) or isinstance(exits, str):
        raise LayerscopeError(f"exits {exits!r} are not layers: give some of 1 to {depth - 1}, such as (2, 3)")
    for layer in exits:
        if isinstance(layer, bool) or not isinstance(layer, (int, np.integer)) or not 1 <= layer < depth:
            raise LayerscopeError(f"exit {layer!r} does not exist: give layers from 1 on, before the last of {depth}")
    found = sorted(int(layer) for layer in exits)
    twice = next((one for one, other in zip(found, found[1:], strict=False) if one == other), None)
    if twice is not None:
        raise LayerscopeError(f"exit {twice} is named twice: name each once")
    return tuple(found)


def _calibration(
    recorded: Recorded, exits: tuple[int, ...], goal: Goal, threshold: float, errors: int, tested: int
) -> Calibration:
    n, leaving = len(recorded), recorded.leaves(exits, threshold)
    labels = recorded.labels
    return Calibration(
        recorded.criterion, exits, threshold, recorded.depth, recorded.classes, goal, n, errors,
        p_value=float(p_value(errors, n, goal.risk)),
        tested=tested,
        mean_layer=float(leaving.mean()),
        disagreement=float(recorded.disagrees(leaving).mean()),
        accuracy=None if labels is None else float((recorded.predicted(leaving) == labels).mean()),
        full_accuracy=None if labels is None else float((recorded.full == labels).mean()),
    )  # fmt: skip


def _check_recorded(recorded: Recorded, goal: Goal) -> None:
    if goal.min_accuracy is not None and recorded.labels is None:
        raise LayerscopeError("min_accuracy needs labels, and the data have none: give some, or max_disagreement")
    check_enough(len(recorded), goal)
    if recorded.classes < 2:
        raise LayerscopeError("the model has one class, of which every exit is sure: nothing can be calibrated")
    bad = np.flatnonzero(~np.isfinite(recorded.scores).all(axis=1))
    if len(bad):
        raise LayerscopeError(
            f"scores of {len(bad):,} samples, the first at row {bad[0]}, are not finite: look at the model's logits"
        )


def _not_reached(errors: int, n: int, goal: Goal) -> str:
    certified = math.floor(1e4 * (1 - upper_bound(errors, n, goal.confidence))) / 1e4
    return (
        f"{goal.told} is not reached: the full model is right on {n - errors:,} of {n:,} samples "
        f"({percent((n - errors) / n)}), which certifies {certified:g}: ask for no more, or give more samples"
    )


def _check_figures(found: Calibration) -> None:
    """Refuse what no calibration can hold: a type or range that is wrong, or evidence that does not meet the goal."""
    check_criterion(found.criterion)
    counts = {"depth": 1, "classes": 2, "n": 1, "errors": 0, "tested": 0}
    ranges = {"threshold": (0.0, NEVER), "mean_layer": (1.0, float(found.depth))}
    ranges |= dict.fromkeys(("p_value", "disagreement", "accuracy", "full_accuracy"), (0.0, 1.0))
    for name, least in counts.items():
        value = getattr(found, name)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise LayerscopeError(f"{name} is {value!r}")
    for name, (low, high) in ranges.items():
        value = getattr(found, name)
        absent = value is None and name in ("accuracy", "full_accuracy")
        if not absent and (isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high):
            raise LayerscopeError(f"{name} is {value!r}")
    if check_exits(found.exits, found.depth) != found.exits:
        raise LayerscopeError(f"exits are {list(found.exits)}, not in order")
    if not isinstance(found.fingerprint, str) or not isinstance(found.dtype, str):
        raise LayerscopeError(f"fingerprint and dtype are {found.fingerprint!r} and {found.dtype!r}")
    told = p_value(found.errors, found.n, found.goal.risk)
    if not math.isclose(found.p_value, told, rel_tol=1e-6) or found.p_value > found.goal.delta * (1 + 1e-6):
        raise LayerscopeError(f"p_value is {found.p_value!r}, which {found.errors} errors of {found.n} do not give")

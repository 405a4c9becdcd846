"""What every probe shares: which samples it can judge, their folds, and the score."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from layerscope.core.errors import LayerscopeError
from layerscope.core.margin import INTERVAL, error_of
from layerscope.metrics.arrays import Array, as_finite64, unit_rows
from layerscope.metrics.metric import How, Needs

Bools = npt.NDArray[np.bool_]
Numbers = npt.NDArray[Any]


@dataclass(frozen=True)
class ProbeScore:
    """Cross-validated accuracy of one probe.

    `mean` is the share of held-out predictions that are correct, over all `n` samples, `stderr` its
    binomial standard error, `low` and `high` Wilson's 95 % interval, `folds` the accuracy of each
    fold, and `n_skipped` the number of samples whose class has fewer members than there are folds.
    `strengths` is the C of each fold of a linear probe (small is strong regularisation), empty for
    the other probes. Of a ridge probe `mean` is R², and all else goes by what each sample contributes to it.

    >>> from layerscope.probes import knn_probe
    >>> score = knn_probe(np.eye(20)[np.arange(40) % 20], np.arange(40) % 2)
    >>> score.n, len(score.folds), score.low <= score.mean <= score.high
    (40, 5, True)
    """

    mean: float
    stderr: float
    low: float
    high: float
    n: int
    n_skipped: int
    folds: tuple[float, ...]
    strengths: tuple[float, ...] = ()
    right: Numbers | None = field(default=None, repr=False, compare=False)
    """Which of the `n` are right, or what each contributes to R²."""
    losses: tuple[float, ...] = field(default=(), repr=False, compare=False)
    """Of a linear probe, the log-loss over the other folds by which each fold's C was chosen."""


@dataclass(frozen=True)
class FromLabels(How):
    """A cross-validated probe of pooled states."""

    needs: ClassVar[Needs] = "labels"
    probe: Callable[..., ProbeScore]
    """Takes states `[N, D]`, labels `[N]`, `folds` and `seed`."""


@dataclass(frozen=True)
class FromTarget(FromLabels):
    """A cross-validated probe of numbers instead of classes."""


@dataclass(frozen=True)
class FromScore(How):
    """A number beside the accuracy of a probe."""

    needs: ClassVar[Needs] = "labels"
    compute: Callable[[ProbeScore], float]


def score_of(
    right: Bools,
    fold: Numbers,
    skipped: int,
    strengths: tuple[float, ...] = (),
    losses: tuple[float, ...] = (),
) -> ProbeScore:
    """Return the score of independent held-out samples, each `right` or not in its fold."""
    from scipy.stats import binomtest

    mean = float(right.mean())
    n = len(right)
    interval = binomtest(int(right.sum()), n).proportion_ci(0.95, method="wilson")
    stderr = float(np.sqrt(mean * (1 - mean) / n))
    return ProbeScore(
        mean,
        stderr,
        float(interval.low),
        float(interval.high),
        n,
        skipped,
        by_fold(right, fold),
        strengths,
        right,
        losses,
    )


def score_of_values(
    values: Numbers, fold: Numbers, strengths: tuple[float, ...] = ()
) -> ProbeScore:
    """Return the score whose mean is that of what each held-out sample contributes to it `[n]`."""
    mean = float(values.mean())
    error = error_of(values)
    return ProbeScore(
        mean,
        error,
        low=mean - INTERVAL * error,
        high=mean + INTERVAL * error,
        n=len(values),
        n_skipped=0,
        folds=by_fold(values, fold),
        strengths=strengths,
        right=values,
    )


def usable_rows(
    states: Array, labels: npt.ArrayLike, folds: int, least: int = 2
) -> tuple[Numbers, Numbers, int]:
    """Return unit rows, class numbers, and how many samples were left out for the size of their class."""
    rows = unit_rows(as_finite64(states, "states")).cpu().numpy()
    if rows.ndim != 2:
        raise LayerscopeError(
            f"states has shape {rows.shape}: give [N, D] states and one label for each row"
        )
    kept, classes, skipped = usable_classes(labels, len(rows), folds, least)
    return rows[kept], classes, skipped


def usable_classes(
    labels: npt.ArrayLike, n: int, folds: int, least: int = 2
) -> tuple[Bools, Numbers, int]:
    """Return which of n samples can be judged in `folds` folds, their classes from 0 on, and how many are left out.

    A class needs a member for each fold; two classes and `least` folds are needed.
    """
    names = np.asarray(labels)
    if names.shape != (n,):
        raise LayerscopeError(
            f"{n} samples and labels of shape {names.shape}: give one label for each sample"
        )
    if folds < least:
        raise LayerscopeError(f"folds is {folds}: give at least {least}")
    _, classes, sizes = np.unique(names, return_inverse=True, return_counts=True)
    kept = sizes[classes] >= folds
    if (sizes >= folds).sum() < 2:
        raise LayerscopeError(
            f"fewer than 2 classes have {folds} members: label more samples, or give fewer `folds`"
        )
    _, numbers = np.unique(classes[kept], return_inverse=True)
    return kept, numbers, int((~kept).sum())


def by_fold(right: Numbers, fold: Numbers) -> tuple[float, ...]:
    """Return the mean of each fold, of what is right its accuracy."""
    return tuple(
        float(right[fold == number].mean()) for number in range(int(fold.max()) + 1)
    )


def stratified(
    classes: Numbers, folds: int, seed: int, groups: Numbers | None = None
) -> Numbers:
    """Return the fold of each sample, every class being spread over all of them, and no group over two."""
    from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold

    kind = StratifiedKFold if groups is None else StratifiedGroupKFold
    fold = np.zeros(len(classes), dtype=np.int64)
    for number, (_, test) in enumerate(
        kind(folds, shuffle=True, random_state=seed).split(classes, classes, groups)
    ):
        fold[test] = number
    return fold

"""What every probe shares: which samples it can judge, their folds, and the score."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from layerscope.core.errors import LayerscopeError
from layerscope.metrics.arrays import Array, as_finite64, unit_rows
from layerscope.metrics.metric import How, Needs


@dataclass(frozen=True)
class ProbeScore:
    """Cross-validated accuracy of one probe.

    `mean` is the share of held-out predictions that are right, over all `n` samples, `stderr` its binomial standard
    error, `low` and `high` Wilson's 95 % interval, `folds` the accuracy of each fold, and `n_skipped` the number of
    samples whose class has fewer members than there are folds. `strengths` is the C of each fold of a linear probe
    (small is strong regularisation), empty for the other probes.

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
    right: npt.NDArray[np.bool_] | None = field(default=None, repr=False, compare=False)
    """Which of the `n` are right, where they are independent of each other."""


@dataclass(frozen=True)
class FromLabels(How):
    """A cross-validated probe of pooled states."""

    needs: ClassVar[Needs] = "labels"
    probe: Callable[..., ProbeScore]
    """Takes states `[N, D]`, labels `[N]`, `folds` and `seed`."""


@dataclass(frozen=True)
class FromScore(How):
    """A number beside the accuracy of a probe."""

    needs: ClassVar[Needs] = "labels"
    compute: Callable[[ProbeScore], float]


def score_of(
    right: npt.NDArray[np.bool_], fold: npt.NDArray[np.int64], skipped: int, strengths: tuple[float, ...] = ()
) -> ProbeScore:
    """Return the score of independent held-out samples, each `right` or not in its fold."""
    from scipy.stats import binomtest

    mean, n = float(right.mean()), len(right)
    interval = binomtest(int(right.sum()), n).proportion_ci(0.95, method="wilson")
    stderr = float(np.sqrt(mean * (1 - mean) / n))
    low, high = float(interval.low), float(interval.high)
    return ProbeScore(mean, stderr, low, high, n, skipped, by_fold(right, fold), strengths, right)


def usable_rows(
    states: Array, labels: npt.ArrayLike, folds: int, least: int = 2
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64], int]:
    """Return unit rows, class numbers, and how many samples were left out for the size of their class."""
    rows = unit_rows(as_finite64(states, "states")).cpu().numpy()
    if rows.ndim != 2:
        raise LayerscopeError(f"states has shape {rows.shape}: give [N, D] states and one label for each row")
    kept, classes, skipped = usable_classes(labels, len(rows), folds, least)
    return rows[kept], classes, skipped


def usable_classes(
    labels: npt.ArrayLike, n: int, folds: int, least: int = 2
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.int64], int]:
    """Return which of n samples can be judged in `folds` folds, their classes from 0 on, and how many are left out.

    A class needs a member for each fold. Raises `LayerscopeError` for fewer than `least` folds, and where fewer than 2
    classes have enough members.
    """
    names = np.asarray(labels)
    if names.shape != (n,):
        raise LayerscopeError(f"{n} samples and labels of shape {names.shape}: give one label for each sample")
    if folds < least:
        raise LayerscopeError(f"folds is {folds}: give at least {least}")
    _, classes, sizes = np.unique(names, return_inverse=True, return_counts=True)
    kept = sizes[classes] >= folds
    if int((sizes >= folds).sum()) < 2:
        raise LayerscopeError(f"fewer than 2 classes have {folds} members: label more samples, or give fewer `folds`")
    return kept, np.unique(classes[kept], return_inverse=True)[1], int((~kept).sum())


def numbered(splits: Iterable[tuple[Any, Any]], n: int) -> npt.NDArray[np.int64]:
    """Return the fold of each of n samples."""
    fold = np.zeros(n, dtype=np.int64)
    for number, (_, test) in enumerate(splits):
        fold[test] = number
    return fold


def by_fold(right: npt.NDArray[np.bool_], fold: npt.NDArray[np.int64]) -> tuple[float, ...]:
    """Return the accuracy of each fold."""
    return tuple(float(right[fold == number].mean()) for number in range(int(fold.max()) + 1))


def stratified(classes: npt.NDArray[np.int64], folds: int, seed: int) -> npt.NDArray[np.int64]:
    """Return the fold of each sample, every class being spread over all of them."""
    from sklearn.model_selection import StratifiedKFold

    return numbered(StratifiedKFold(folds, shuffle=True, random_state=seed).split(classes, classes), len(classes))

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import binomtest
from sklearn import config_context
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from layerscope.errors import LayerscopeError
from layerscope.metrics.arrays import Array, as_finite64, unit_rows

_DISTANCES_MB = 8  # scikit-learn would hold the distances between all samples at once


@dataclass(frozen=True)
class ProbeScore:
    """Cross-validated accuracy of one probe.

    `mean` is the share of right held-out predictions over all `n` samples, `stderr` its binomial standard
    error, `low` and `high` Wilson's 95 % interval, `folds` the accuracy of each fold, and `n_skipped` the
    number of samples whose class has fewer members than there are folds.
    """

    mean: float
    stderr: float
    low: float
    high: float
    n: int
    n_skipped: int
    folds: tuple[float, ...]


def linear_probe(states: Array, labels: npt.ArrayLike, folds: int = 5, seed: int = 0) -> ProbeScore:
    """Return how well a linear classifier reads `labels` from `states`, cross-validated.

    `states` is `[N, D]`, `labels` `[N]` of any type. Rows are scaled to unit norm, features standardised on
    the training folds, and multinomial logistic regression (L2, C = 1) fitted. Folds are stratified and
    depend on labels and seed only, so that layers are compared on equal splits. Accuracy in 0 ... 1. Raises
    `LayerscopeError` for non-finite states, shapes that do not fit, and fewer than 2 classes with enough
    members.

    Source: Alain and Bengio 2016, Understanding intermediate layers using linear classifier probes.
    """
    return _cross_validate(*_usable(states, labels, folds), _linear, folds, seed)


def linear_probe_hits(states: Array, labels: npt.ArrayLike, folds: int = 5, seed: int = 0) -> npt.NDArray[np.bool_]:
    """Return which held-out predictions of `linear_probe` are right, `[n]`, for pairing layers sample by sample.

    The same arguments and errors; samples whose class has fewer members than there are folds have no entry.
    """
    rows, classes, _ = _usable(states, labels, folds)
    return _held_out(rows, classes, _linear, folds, seed)[0]


def knn_probe(states: Array, labels: npt.ArrayLike, k: int = 10, folds: int = 5, seed: int = 0) -> ProbeScore:
    """Return how often most of the `k` nearest neighbours by cosine have the right label, cross-validated.

    `states` is `[N, D]`, `labels` `[N]` of any type; neighbours come from the training folds, which are
    those of `linear_probe`; a tie goes to the class first in order. Accuracy in 0 ... 1. Raises
    `LayerscopeError` as `linear_probe` does, and where a training fold has fewer than k samples.

    Source: Wu et al. 2018, Unsupervised feature learning via non-parametric instance discrimination.
    """
    rows, classes, skipped = _usable(states, labels, folds)
    smallest = len(rows) - -(-len(rows) // folds)
    if not 1 <= k <= smallest:
        raise LayerscopeError(f"k={k} neighbours out of {smallest} training samples: give k from 1 to {smallest}")

    def classifier() -> Any:
        # Between unit rows Euclidean order is cosine order, and the faster of the two.
        return KNeighborsClassifier(n_neighbors=k, algorithm="brute")

    return _cross_validate(rows, classes, skipped, classifier, folds, seed)


def _usable(
    states: Array, labels: npt.ArrayLike, folds: int
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64], int]:
    """Return unit rows, class numbers, and how many samples were left out for the size of their class."""
    rows = unit_rows(as_finite64(states, "states")).cpu().numpy()
    names = np.asarray(labels)
    if rows.ndim != 2 or names.shape != rows.shape[:1]:
        raise LayerscopeError(
            f"states has shape {rows.shape} and labels {names.shape}: give [N, D] states and one label for each row"
        )
    if folds < 2:
        raise LayerscopeError(f"folds={folds}: give at least 2")
    _, classes, sizes = np.unique(names, return_inverse=True, return_counts=True)
    kept = sizes[classes] >= folds
    if len(np.unique(classes[kept])) < 2:
        raise LayerscopeError(f"fewer than 2 classes have {folds} members: label more samples or ask for fewer folds")
    return rows[kept], classes[kept], int((~kept).sum())


def _linear() -> Any:
    return make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000, tol=1e-3))


def _cross_validate(
    rows: npt.NDArray[np.float64],
    classes: npt.NDArray[np.int64],
    skipped: int,
    classifier: Callable[[], Any],
    folds: int,
    seed: int,
) -> ProbeScore:
    right, accuracies = _held_out(rows, classes, classifier, folds, seed)
    mean = float(right.mean())
    interval = binomtest(int(right.sum()), len(right)).proportion_ci(0.95, method="wilson")
    return ProbeScore(
        mean=mean,
        stderr=float(np.sqrt(mean * (1 - mean) / len(right))),
        low=float(interval.low),
        high=float(interval.high),
        n=len(right),
        n_skipped=skipped,
        folds=tuple(accuracies),
    )


def _held_out(
    rows: npt.NDArray[np.float64],
    classes: npt.NDArray[np.int64],
    classifier: Callable[[], Any],
    folds: int,
    seed: int,
) -> tuple[npt.NDArray[np.bool_], list[float]]:
    """Return which held-out predictions are right, and the accuracy of each fold."""
    right = np.zeros(len(classes), dtype=bool)
    accuracies = []
    for train, test in StratifiedKFold(folds, shuffle=True, random_state=seed).split(rows, classes):
        fitted = classifier().fit(rows[train], classes[train])
        with config_context(working_memory=_DISTANCES_MB):
            right[test] = fitted.predict(rows[test]) == classes[test]
        accuracies.append(float(right[test].mean()))
    return right, accuracies

"""The ridge probe: linear regression of numbers, judged on folds; its C is chosen inside every training fold."""

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from layerscope.core import LayerscopeError
from layerscope.metrics.arrays import Array, as_finite64, unit_rows
from layerscope.metrics.metric import Metric
from layerscope.probes.linear import APART, LARGE, thinned
from layerscope.probes.scores import FromTarget, Numbers, ProbeScore, score_of_values

STRENGTHS: tuple[float, ...] = tuple(np.logspace(-5, 1, 13).round(6).tolist())
"""Values of C, the inverse of the penalty on the squared weights, from strong regularisation to weak."""


def ridge_probe(
    states: Array, targets: npt.ArrayLike, folds: int = 5, seed: int = 0
) -> ProbeScore:
    """Return how well a linear regression reads the numbers `targets` from `states`, cross-validated.

    `states` is `[N, D]`, `targets` `[N]`. Rows are scaled to unit norm, features standardised on
    the training folds, and a ridge regression fitted. Its C (1/α), one of 13 values from 0.00001 to
    10, is that of the lowest squared error on folds held out of the training folds, for which about
    1,500 samples are taken at most. The score is R², the share of the variance that is explained: 1
    is perfect, 0 what always guessing the mean gives, and it may be lower. `right` holds what each
    sample contributes, 1 minus its squared error in units of the variance; their mean is R². Raises
    `LayerscopeError` for non-finite states or targets, equal targets, and fewer than 3 folds.

    Source: Hoerl, Kennard 1970, Ridge Regression: Biased Estimation for Nonorthogonal Problems.

    >>> from layerscope.probes import ridge_probe
    >>> states = np.random.default_rng(0).normal(size=(60, 4))
    >>> ridge_probe(states, states[:, 0] / np.linalg.norm(states, axis=1)).mean > 0.99
    True
    """
    return score_of_values(*ridge_probe_values(states, targets, folds, seed))


def ridge_probe_values(
    states: Array, targets: npt.ArrayLike, folds: int, seed: int
) -> tuple[Numbers, Numbers, tuple[float, ...]]:
    """Return what each sample contributes to the R² of `ridge_probe`, the fold of each `[n]`, and each fold's C."""
    rows = unit_rows(as_finite64(states, "states")).cpu().numpy()
    numbers = np.asarray(targets, dtype=np.float64)
    if rows.ndim != 2 or numbers.shape != rows.shape[:1]:
        raise LayerscopeError(
            f"states of shape {rows.shape} and targets of shape {numbers.shape}: give one number for each row"
        )
    if not np.isfinite(numbers).all() or np.ptp(numbers) == 0:
        raise LayerscopeError("a ridge probe needs finite numbers that differ")
    if folds < 3 or len(rows) < 2 * folds:
        raise LayerscopeError(
            f"{len(rows)} samples and {folds} folds: give three folds of two samples, or more"
        )
    fold = np.random.default_rng(seed).permutation(len(rows)) % folds
    predictions, strengths = ridge_predictions(rows, numbers, fold, seed)
    return explained(numbers, predictions), fold, strengths


def explained(targets: Numbers, predictions: Numbers) -> Numbers:
    """Return 1 minus each squared error in units of the variance of the targets `[n]`; the mean is R²."""
    return np.asarray(1 - (targets - predictions) ** 2 / targets.var())


def ridge_predictions(
    rows: Numbers, targets: Numbers, fold: Numbers, seed: int
) -> tuple[Numbers, tuple[float, ...]]:
    """Return what is predicted of each sample while its fold is held out `[n]`, and the C of each fold.

    As `linearly_judged` does for classes: the C of a fold is chosen by the others, and samples of
    the fold `APART` have no part in cross-validation: a regression of all others predicts them.
    """
    inside = fold != APART
    threads = None if rows.size >= LARGE // 64 else 1
    with threadpool_limits(threads):
        errors = _errors(rows[inside], targets[inside], fold[inside], seed)
        chosen = tuple(STRENGTHS[best] for best in errors.argmin(0))
        strengths = dict(enumerate(chosen))
        if not inside.all():
            strengths[APART] = STRENGTHS[int(errors.sum(1).argmin())]
        predictions = np.zeros(len(rows))
        for number, strength in strengths.items():
            test = fold == number
            train = inside & ~test
            ridge = _Ridge(rows[train], targets[train])
            predictions[test] = ridge.predictions(rows[test], (strength,))[0]
    return predictions, chosen


def _errors(rows: Numbers, targets: Numbers, fold: Numbers, seed: int) -> Numbers:
    """Return the mean squared error of each C over the folds other than each `[tried, folds]`.

    A regression without two neighbouring folds is checked on each of them for the other.
    """
    few = thinned(np.zeros(len(fold), dtype=np.int64), fold, seed)
    rows = rows[few]
    targets = targets[few]
    fold = fold[few]
    folds = int(fold.max()) + 1
    errors = np.zeros((len(STRENGTHS), folds))
    for one in range(folds):
        pair = one, (one + 1) % folds
        train = ~np.isin(fold, pair)
        ridge = _Ridge(rows[train], targets[train])
        for out, judged in (pair, pair[::-1]):
            there = fold == judged
            apart = ridge.predictions(rows[there], STRENGTHS) - targets[there]
            errors[:, out] += (apart**2).mean(1)
    return errors


class _Ridge:
    """Ridge regressions of some samples with any penalty, of one decomposition of the smaller of two products."""

    def __init__(self, rows: Numbers, targets: Numbers) -> None:
        self.center = rows.mean(0)
        scale = rows.std(0)
        self.scale = np.where(scale > 1e-12, scale, 1.0)
        self.mean = float(targets.mean())
        features = self._scaled(rows)
        centred = targets - self.mean
        n, width = features.shape
        if n < width:
            self.basis = features
            product = features @ features.T
            with_targets = centred
        else:
            self.basis = np.eye(width)
            product = features.T @ features
            with_targets = features.T @ centred
        self.sizes, self.vectors = np.linalg.eigh(product)
        self.along = self.vectors.T @ with_targets

    def predictions(self, rows: Numbers, strengths: tuple[float, ...]) -> Numbers:
        """Return what each C predicts of samples `[tried, n]`."""
        penalties = 1 / np.array(strengths)[:, None]
        weights = self.along / (self.sizes + penalties) @ self.vectors.T @ self.basis
        return np.asarray(weights @ self._scaled(rows).T + self.mean)

    def _scaled(self, rows: Numbers) -> Numbers:
        return np.asarray((rows - self.center) / self.scale)


RIDGE_PROBE = Metric(
    ridge_probe,
    FromTarget(ridge_probe),
    unit="%",
    reading="cross-validated R²; 0 is what guessing the mean gives",
    meaning="Share of the variance of your numbers (R²) that a ridge regression from a layer's pooled states explains, "
    "cross-validated; its regularisation is chosen inside every training fold.",
    direction="High: the numbers can be read off linearly. This one is a verdict, for these numbers.",
)

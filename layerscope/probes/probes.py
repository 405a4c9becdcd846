from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import binomtest, norm
from sklearn import config_context
from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold
from sklearn.neighbors import KNeighborsClassifier

from layerscope.core.errors import LayerscopeError
from layerscope.metrics.arrays import Array, as_finite64, unit_rows
from layerscope.probes.regression import APART, linearly_judged

NEIGHBOURS = 10
_DISTANCES_MB = 8  # scikit-learn would hold the distances between all samples at once


@dataclass(frozen=True)
class ProbeScore:
    """Cross-validated accuracy of one probe.

    `mean` is the share of right held-out predictions over all `n` samples, `stderr` its binomial standard
    error, `low` and `high` Wilson's 95 % interval, `folds` the accuracy of each fold, and `n_skipped` the
    number of samples whose class has fewer members than there are folds. `strengths` is the C of each fold of a linear
    probe (small is strong regularisation), empty for the other probes.

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


def linear_probe(states: Array, labels: npt.ArrayLike, folds: int = 5, seed: int = 0) -> ProbeScore:
    """Return how well a linear classifier reads `labels` from `states`, cross-validated.

    `states` is `[N, D]`, `labels` `[N]` of any type. Rows are scaled to unit norm, features standardised on the
    training folds, and multinomial logistic regression (L2) fitted. Its C, of 11 values from 0.0001 to 10, is the one
    of the lowest log-loss on folds held out of the training folds: no sample has a part in the C it is judged with. Of
    more than 1,500 samples about 1,500, an even share of every class, choose C. Folds are stratified and depend on
    labels and seed only, so that layers are compared on equal splits. Accuracy in 0 ... 1. Raises `LayerscopeError` for
    non-finite states, shapes that do not fit, fewer than 3 folds, and fewer than 2 classes with enough members.

    Source: Alain and Bengio 2016, Understanding intermediate layers using linear classifier probes.

    >>> from layerscope.probes import linear_probe
    >>> labels = np.repeat(["praise", "blame"], 15)
    >>> states = np.random.default_rng(0).normal(size=(30, 4)) + np.where(labels == "praise", 2, -2)[:, None]
    >>> linear_probe(states, labels).mean
    1.0
    """
    right, strengths, fold, skipped = _linearly(states, labels, folds, seed)
    return replace(score_of(right, _by_fold(right, fold), skipped), strengths=strengths)


def linear_probe_hits(
    states: Array, labels: npt.ArrayLike, folds: int = 5, seed: int = 0, apart: npt.NDArray[np.bool_] | None = None
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.int64]]:
    """Return which held-out predictions of `linear_probe` are right, for pairing layers, and the fold of each, `[n]`.

    The same arguments and errors; samples whose class has fewer members than there are folds have no entry. Samples
    marked in `apart` `[N]`, of classes with enough others, are in no fold (`APART`): a probe of all others judges them.
    """
    right, _, fold, _ = _linearly(states, labels, folds, seed, apart)
    return right, fold


def held_out(labels: npt.ArrayLike, share: float, seed: int) -> npt.NDArray[np.bool_]:
    """Return a seeded draw of a share of the samples, even over the classes of `labels` `[N]`, as a mask `[N]`."""
    classes = np.unique(np.asarray(labels), return_inverse=True)[1]
    order = np.lexsort((np.random.default_rng([seed, 5]).random(len(classes)), classes))
    taken = np.diff(np.floor(np.arange(len(classes) + 1) * share + 1e-9)) > 0
    mask = np.zeros(len(classes), dtype=bool)
    mask[order] = taken
    return mask


def _linearly(
    states: Array, labels: npt.ArrayLike, folds: int, seed: int, apart: npt.NDArray[np.bool_] | None = None
) -> tuple[npt.NDArray[np.bool_], tuple[float, ...], npt.NDArray[np.int64], int]:
    rows, classes, skipped = _usable(states, labels, folds, least=3)
    inside = np.ones(len(rows), dtype=bool) if apart is None else ~apart
    fold = np.full(len(rows), APART)
    splits = StratifiedKFold(folds, shuffle=True, random_state=seed).split(rows[inside], classes[inside])
    fold[inside] = _numbered(splits, int(inside.sum()))
    return *linearly_judged(rows, classes, fold, seed), fold, skipped


def _numbered(splits: Iterable[tuple[Any, Any]], n: int) -> npt.NDArray[np.int64]:
    """Return the fold of each of n samples."""
    fold = np.zeros(n, dtype=np.int64)
    for number, (_, test) in enumerate(splits):
        fold[test] = number
    return fold


def _by_fold(right: npt.NDArray[np.bool_], fold: npt.NDArray[np.int64]) -> list[float]:
    """Return the accuracy of each fold."""
    return [float(right[fold == number].mean()) for number in range(int(fold.max()) + 1)]


def knn_probe(states: Array, labels: npt.ArrayLike, k: int | None = None, folds: int = 5, seed: int = 0) -> ProbeScore:
    """Return how often most of the `k` nearest neighbours by cosine have the right label, cross-validated.

    `states` is `[N, D]`, `labels` `[N]` of any type; `k` None is 10, or all where there are fewer; neighbours
    come from the training folds, which are those of `linear_probe`; a tie goes to the class of the nearer ones.
    Accuracy in 0 ... 1. Raises `LayerscopeError` as `linear_probe` does, and where a training fold has fewer than
    k samples.

    Source: Wu et al. 2018, Unsupervised feature learning via non-parametric instance discrimination.

    >>> from layerscope.probes import knn_probe
    >>> labels = np.repeat(["praise", "blame"], 15)
    >>> states = np.random.default_rng(0).normal(size=(30, 4)) + np.where(labels == "praise", 2, -2)[:, None]
    >>> knn_probe(states, labels, k=3).mean
    1.0
    """
    rows, classes, skipped = _usable(states, labels, folds)
    smallest = len(rows) - -(-len(rows) // folds)
    k = min(NEIGHBOURS, smallest) if k is None else k
    if not 1 <= k <= smallest:
        raise LayerscopeError(f"k={k} neighbours out of {smallest} training samples: give k from 1 to {smallest}")

    right = np.zeros(len(classes), dtype=bool)
    fold = _numbered(StratifiedKFold(folds, shuffle=True, random_state=seed).split(rows, classes), len(rows))
    # Between unit rows Euclidean order is cosine order, and the faster of the two.
    nearest = KNeighborsClassifier(n_neighbors=k, algorithm="brute", weights=_votes)
    for test in (fold == number for number in range(folds)):
        with config_context(working_memory=_DISTANCES_MB):
            right[test] = nearest.fit(rows[~test], classes[~test]).predict(rows[test]) == classes[test]
    return score_of(right, _by_fold(right, fold), skipped)


def _votes(distances: Array) -> Array:
    """One vote for each neighbour, nearest first; what the nearer ones have more only decides between equal counts."""
    return np.tile(1 + 0.5 ** np.arange(1, distances.shape[1] + 1), (len(distances), 1))


def token_probe(
    states: Array, labels: npt.ArrayLike, sentences: npt.ArrayLike, folds: int = 5, seed: int = 0
) -> ProbeScore:
    """Return how well the linear classifier of `linear_probe` reads the labels of words, sentences held out whole.

    `states` is `[N, D]`, a row a word, `labels` `[N]` and `sentences` `[N]`, the number of the sentence that each word
    stands in. Words of labels that stand in fewer than `folds` sentences are left out and counted. Words of a sentence
    are not independent, so the standard error is that of a ratio over sentences (right words to words), and the
    interval Wilson's at the number of independent words that would have this error. `n` counts words. Raises
    `LayerscopeError` as `linear_probe` does.

    Source: Cochran 1977, Sampling techniques, section 6.3, for the error of a ratio.

    >>> from layerscope.probes import token_probe
    >>> labels = np.repeat(["noun", "verb"], 15)
    >>> states = np.random.default_rng(0).normal(size=(30, 4)) + np.where(labels == "noun", 2, -2)[:, None]
    >>> token_probe(states, labels, sentences=np.arange(30) // 3).mean  # ten sentences of three words
    1.0
    """
    groups = np.asarray(sentences)
    names = np.asarray(labels)
    if names.ndim != 1 or groups.shape != names.shape:
        raise LayerscopeError(f"labels has shape {names.shape} and sentences {groups.shape}: give both for each word")
    known, classes = np.unique(names, return_inverse=True)
    spread = [len(np.unique(groups[classes == number])) for number in range(len(known))]
    frequent = np.array(spread)[classes] >= folds
    if len(np.unique(classes[frequent])) < 2:
        raise LayerscopeError(f"fewer than 2 labels stand in {folds} sentences: give more sentences")
    rows, kept, _ = _usable(states[np.flatnonzero(frequent)], names[frequent], folds, least=3)
    groups = np.unique(groups[frequent], return_inverse=True)[1]
    splits = StratifiedGroupKFold(folds, shuffle=True, random_state=seed).split(rows, kept, groups)
    fold = _numbered(splits, len(rows))
    right, strengths = linearly_judged(rows, kept, fold, seed)
    found = _clustered(right, groups, int((~frequent).sum()), _by_fold(right, fold))
    return replace(found, strengths=strengths)


def _clustered(
    right: npt.NDArray[np.bool_], groups: npt.NDArray[np.int64], skipped: int, folds: Sequence[float]
) -> ProbeScore:
    """Return the score of items that come in groups from 0 on, the groups being independent of each other."""
    sizes, hits = np.bincount(groups), np.bincount(groups, weights=right)
    m, n, mean = len(sizes), len(right), float(right.mean())
    stderr = float(np.sqrt(m / (m - 1) * np.square(hits - mean * sizes).sum()) / n)
    # without any spread (all right, or all wrong) a sentence counts as one word
    effective = mean * (1 - mean) / stderr**2 if stderr > 0 else float(m)
    centre, half = _wilson(mean, min(effective, n))
    return ProbeScore(mean, stderr, min(mean, centre - half), max(mean, centre + half), n, skipped, tuple(folds))


def _wilson(share: float, n: float) -> tuple[float, float]:
    """Return centre and half width of Wilson's 95 % interval, for an n that need not be whole."""
    z = float(norm.ppf(0.975))
    spread = z * np.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return (share + z * z / (2 * n)) / (1 + z * z / n), float(spread / (1 + z * z / n))


def _usable(
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
    """Return which of n samples can be judged in so many folds, their classes from 0 on, and how many are left out.

    A class needs a member for each fold, of which there are `least` or more. Raises `LayerscopeError` where fewer than
    2 classes have them.
    """
    names = np.asarray(labels)
    if names.shape != (n,):
        raise LayerscopeError(f"{n} samples and labels {names.shape}: give one label for each")
    if folds < least:
        raise LayerscopeError(f"folds={folds}: give at least {least}")
    _, classes, sizes = np.unique(names, return_inverse=True, return_counts=True)
    kept = sizes[classes] >= folds
    if int((sizes >= folds).sum()) < 2:
        raise LayerscopeError(f"fewer than 2 classes have {folds} members: label more samples or ask for fewer folds")
    return kept, np.unique(classes[kept], return_inverse=True)[1], int((~kept).sum())


def score_of(right: npt.NDArray[np.bool_], folds: Sequence[float], skipped: int) -> ProbeScore:
    """Return the score of independent held-out samples, each `right` or not."""
    mean = float(right.mean())
    interval = binomtest(int(right.sum()), len(right)).proportion_ci(0.95, method="wilson")
    return ProbeScore(
        mean=mean,
        stderr=float(np.sqrt(mean * (1 - mean) / len(right))),
        low=float(interval.low),
        high=float(interval.high),
        n=len(right),
        n_skipped=skipped,
        folds=tuple(folds),
        right=right,
    )

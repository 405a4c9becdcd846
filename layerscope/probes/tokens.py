"""The token probe: labels of words, read from the states of their tokens."""

import numpy as np
import numpy.typing as npt

from layerscope.core.errors import LayerscopeError
from layerscope.core.margin import error_of
from layerscope.metrics.arrays import Array
from layerscope.probes.linear import linearly_judged
from layerscope.probes.scores import (
    Bools,
    Numbers,
    ProbeScore,
    by_fold,
    stratified,
    usable_classes,
    usable_rows,
)

Floats = tuple[float, ...]


def token_probe(
    states: Array,
    labels: npt.ArrayLike,
    sentences: npt.ArrayLike,
    folds: int = 5,
    seed: int = 0,
) -> ProbeScore:
    """Return how well the linear classifier of `linear_probe` reads the labels of words, sentences held out whole.

    `states` is `[N, D]`, one row per word, `labels` `[N]` and `sentences` `[N]`, the number of the
    sentence that each word belongs to. Words of labels that occur in fewer than `folds` sentences
    are left out and counted. Words of a sentence are not independent, so the standard error is that
    of a ratio over sentences (right words to words), and the interval Wilson's at the number of
    independent words that would have this error. `n` counts words.

    >>> labels = np.repeat(["noun", "verb"], 15)
    >>> states = np.random.default_rng(0).normal(size=(30, 4)) + np.where(labels == "noun", 2, -2)[:, None]
    >>> token_probe(states, labels, sentences=np.arange(30) // 3).mean  # ten sentences of three words
    1.0
    """
    kept, classes, fold, groups = words_split(labels, sentences, folds, seed)
    rows = usable_rows(
        states[np.flatnonzero(kept)], np.asarray(labels)[kept], folds, least=3
    )[0]
    right, strengths, losses = linearly_judged(rows, classes, fold, seed)
    return words_score(
        right, fold, int((~kept).sum()), strengths, losses, groups=groups
    )


def words_split(
    labels: npt.ArrayLike, sentences: npt.ArrayLike, folds: int, seed: int
) -> tuple[Bools, Numbers, Numbers, Numbers]:
    """Return which words are judged `[N]`, and of these `[n]` their classes, folds and sentences, each from 0 on."""
    names, groups = np.asarray(labels), np.asarray(sentences)
    if names.ndim != 1 or groups.shape != names.shape:
        raise LayerscopeError(
            f"labels has shape {names.shape} and sentences {groups.shape}: give both for each word"
        )
    kinds, classes = np.unique(names, return_inverse=True)
    spread = [len(np.unique(groups[classes == number])) for number in range(len(kinds))]
    kept = np.array(spread)[classes] >= folds
    if len(np.unique(classes[kept])) < 2:
        raise LayerscopeError(
            f"fewer than 2 labels occur in {folds} sentences: give more sentences, or fewer `folds`"
        )
    classes = usable_classes(names[kept], int(kept.sum()), folds, least=3)[1]
    groups = np.unique(groups[kept], return_inverse=True)[1]
    return kept, classes, stratified(classes, folds, seed, groups), groups


def words_score(
    right: Bools,
    fold: Numbers,
    skipped: int,
    strengths: Floats,
    losses: Floats,
    *,
    groups: Numbers,
) -> ProbeScore:
    """Return the score of words, each `right` or not in its fold, with the error and interval of `token_probe`."""
    from scipy.stats import norm

    m, n, mean, stderr = (
        int(groups.max()) + 1,
        len(right),
        float(right.mean()),
        error_of(right, groups),
    )
    # without any spread (all right, or all wrong) a sentence counts as one word
    words = min(mean * (1 - mean) / stderr**2 if stderr > 0 else float(m), n)
    # Wilson's interval, for a number of words that need not be whole
    z = float(norm.ppf(0.975))
    centre = (mean + z * z / (2 * words)) / (1 + z * z / words)
    half = float(
        z
        * np.sqrt(mean * (1 - mean) / words + z * z / (4 * words * words))
        / (1 + z * z / words)
    )
    low, high = min(mean, centre - half), max(mean, centre + half)
    return ProbeScore(
        mean,
        stderr,
        low,
        high,
        n,
        skipped,
        by_fold(right, fold),
        strengths,
        right,
        losses,
    )

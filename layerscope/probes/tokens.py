"""The token probe: labels of words, read from the states of their tokens."""

import math
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pandas as pd

from layerscope.core.errors import LayerscopeError
from layerscope.core.margin import error_of
from layerscope.metrics.arrays import Array
from layerscope.probes.linear import linearly_judged
from layerscope.probes.scores import (
    Bools,
    Numbers,
    ProbeScore,
    score_of,
    stratified,
    usable_rows,
)


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
    kept, groups = _kept(labels, sentences, folds)
    rows, classes, _ = usable_rows(
        states[np.flatnonzero(kept)], np.asarray(labels)[kept], folds, least=3
    )
    fold = stratified(classes, folds, seed, groups)
    right, strengths, losses = linearly_judged(rows, classes, fold, seed)
    score = score_of(right, fold, int((~kept).sum()), strengths, losses)
    stderr = error_of(right, groups)
    low, high = _interval(score.mean, stderr, score.n, int(groups.max()) + 1)
    return replace(score, stderr=stderr, low=low, high=high)


def _kept(
    labels: npt.ArrayLike, sentences: npt.ArrayLike, folds: int
) -> tuple[Bools, Numbers]:
    """Return which words are judged `[N]`, and the sentences of these from 0 on `[n]`."""
    names = np.asarray(labels)
    groups = np.asarray(sentences)
    if names.ndim != 1 or groups.shape != names.shape:
        raise LayerscopeError(
            f"labels has shape {names.shape} and sentences {groups.shape}: give both for each word"
        )
    by_label = pd.Series(groups).groupby(names, dropna=False)
    kept = (by_label.transform("nunique") >= folds).to_numpy()
    if len(np.unique(names[kept])) < 2:
        raise LayerscopeError(
            f"fewer than 2 labels occur in {folds} sentences: give more sentences, or fewer `folds`"
        )
    return kept, np.unique(groups[kept], return_inverse=True)[1]


def _interval(
    mean: float, stderr: float, n: int, sentences: int
) -> tuple[float, float]:
    """Return the interval of a share of `n` words in `sentences` sentences, with this standard error."""
    from scipy.stats import norm

    # without any spread (all right, or all wrong) a sentence counts as one word
    words = float(sentences)
    if stderr > 0:
        words = mean * (1 - mean) / stderr**2
    words = min(words, n)
    # Wilson's interval, for a number of words that need not be whole
    z = float(norm.ppf(0.975))
    scale = 1 + z * z / words
    centre = (mean + z * z / (2 * words)) / scale
    variance = mean * (1 - mean) / words + z * z / (4 * words * words)
    half = z * math.sqrt(variance) / scale
    return min(mean, centre - half), max(mean, centre + half)

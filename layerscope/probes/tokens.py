"""The token probe: labels of words, read from the states of their tokens."""

import numpy as np
import numpy.typing as npt

from layerscope.core.errors import LayerscopeError
from layerscope.metrics.arrays import Array
from layerscope.probes.linear import linearly_judged
from layerscope.probes.scores import ProbeScore, by_fold, stratified, usable_rows


def token_probe(
    states: Array, labels: npt.ArrayLike, sentences: npt.ArrayLike, folds: int = 5, seed: int = 0
) -> ProbeScore:
    """Return how well the linear classifier of `linear_probe` reads the labels of words, sentences held out whole.

    `states` is `[N, D]`, a row a word, `labels` `[N]` and `sentences` `[N]`, the number of the sentence that each word
    belongs to. Words of labels that occur in fewer than `folds` sentences are left out and counted. Words of a sentence
    are not independent, so the standard error is that of a ratio over sentences (right words to words), and the
    interval Wilson's at the number of independent words that would have this error. `n` counts words.

    Source: Cochran 1977, Sampling techniques, section 6.3, for the error of a ratio.

    >>> labels = np.repeat(["noun", "verb"], 15)
    >>> states = np.random.default_rng(0).normal(size=(30, 4)) + np.where(labels == "noun", 2, -2)[:, None]
    >>> token_probe(states, labels, sentences=np.arange(30) // 3).mean  # ten sentences of three words
    1.0
    """
    from scipy.stats import norm

    names, groups = np.asarray(labels), np.asarray(sentences)
    if names.ndim != 1 or groups.shape != names.shape:
        raise LayerscopeError(f"labels has shape {names.shape} and sentences {groups.shape}: give both for each word")
    known, classes = np.unique(names, return_inverse=True)
    spread = [len(np.unique(groups[classes == number])) for number in range(len(known))]
    frequent = np.array(spread)[classes] >= folds
    if len(np.unique(classes[frequent])) < 2:
        raise LayerscopeError(f"fewer than 2 labels occur in {folds} sentences: give more sentences, or fewer `folds`")
    rows, kept, _ = usable_rows(states[np.flatnonzero(frequent)], names[frequent], folds, least=3)
    groups = np.unique(groups[frequent], return_inverse=True)[1]
    fold = stratified(kept, folds, seed, groups)
    right, strengths = linearly_judged(rows, kept, fold, seed)
    sizes, hits = np.bincount(groups), np.bincount(groups, weights=right)
    m, n, mean = len(sizes), len(right), float(right.mean())
    stderr = float(np.sqrt(m / (m - 1) * np.square(hits - mean * sizes).sum()) / n)
    # without any spread (all right, or all wrong) a sentence counts as one word
    words = min(mean * (1 - mean) / stderr**2 if stderr > 0 else float(m), n)
    z = float(norm.ppf(0.975))  # Wilson's interval, for a number of words that need not be whole
    centre = (mean + z * z / (2 * words)) / (1 + z * z / words)
    half = float(z * np.sqrt(mean * (1 - mean) / words + z * z / (4 * words * words)) / (1 + z * z / words))
    low, high, skipped = min(mean, centre - half), max(mean, centre + half), int((~frequent).sum())
    return ProbeScore(mean, stderr, low, high, n, skipped, by_fold(right, fold), strengths)

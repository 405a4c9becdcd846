"""The linear probe."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from layerscope.metrics.arrays import Array
from layerscope.metrics.metric import Metric
from layerscope.probes.regression import APART, linearly_judged
from layerscope.probes.scores import FromLabels, FromScore, ProbeScore, by_fold, score_of, stratified, usable_rows

__all__ = ["linear_probe"]


def linear_probe(states: Array, labels: npt.ArrayLike, folds: int = 5, seed: int = 0) -> ProbeScore:
    """Return how well a linear classifier reads `labels` from `states`, cross-validated.

    `states` is `[N, D]`, `labels` `[N]` of any type. Rows are scaled to unit norm, features standardised on the
    training folds, and multinomial logistic regression (L2) fitted. Its C, of 11 values from 0.0001 to 10, is the one
    of the lowest log-loss on folds held out of the training folds: no sample has a part in the C it is judged with. Of
    more than 1,500 samples about 1,500, an even share of every class, choose C. Folds are stratified and depend on
    labels and seed only, so that layers are compared on equal splits. Accuracy in 0 ... 1. Raises `LayerscopeError` for
    non-finite states, shapes that do not fit, fewer than 3 folds, and fewer than 2 classes with enough members.

    Source: Alain, Bengio 2016, Understanding Intermediate Layers Using Linear Classifier Probes.

    >>> from layerscope.probes import linear_probe
    >>> labels = np.repeat(["praise", "blame"], 15)
    >>> states = np.random.default_rng(0).normal(size=(30, 4)) + np.where(labels == "praise", 2, -2)[:, None]
    >>> linear_probe(states, labels).mean
    1.0
    """
    right, strengths, fold, skipped = _linearly(states, labels, folds, seed)
    return replace(score_of(right, by_fold(right, fold), skipped), strengths=strengths)


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
    rows, classes, skipped = usable_rows(states, labels, folds, least=3)
    inside = np.ones(len(rows), dtype=bool) if apart is None else ~apart
    fold = np.full(len(rows), APART)
    fold[inside] = stratified(classes[inside], folds, seed)
    return *linearly_judged(rows, classes, fold, seed), fold, skipped


LINEAR_PROBE = Metric(
    linear_probe,
    FromLabels(linear_probe),
    title="linear probe",
    unit="%",
    reading="cross-validated share right",
    meaning="Cross-validated accuracy of a logistic regression from a layer's pooled states to your labels; its "
    "regularisation is chosen inside every training fold.",
    direction="High: the labels can be read off linearly. This one is a verdict, for these labels.",
    order=0,
)
LINEAR_PROBE_C = Metric(
    name="linear_probe_c",
    how=FromScore(lambda score: float(np.median(score.strengths))),
    title="linear probe's C",
    reading="median over the folds; small: strong regularisation",
    meaning="Inverse strength of the linear probe's L2 regularisation, chosen by the log-loss on folds held out of "
    "the training folds, from 0.0001 to 10.",
    direction="Low: few of the features carry over to other samples, or the samples are few.",
    source="Stone 1974, Cross-validatory choice and assessment of statistical predictions",
    curve=False,
    beside=("linear_probe",),
    order=0,
)

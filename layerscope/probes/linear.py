"""The linear probe: logistic regression judged on folds, its regularisation chosen inside every training fold."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from layerscope.core.errors import LayerscopeError
from layerscope.metrics.arrays import Array, as_finite64, unit_rows
from layerscope.metrics.metric import Metric
from layerscope.probes.scores import (
    Bools,
    FromLabels,
    FromScore,
    Numbers,
    ProbeScore,
    score_of,
    stratified,
    usable_rows,
)

STRENGTHS: tuple[float, ...] = tuple(np.logspace(-4, 1, 11).round(6).tolist())
"""Values of C that are tried, from strong regularisation to weak."""
SEARCHED = 1500
"""At most about this many samples choose C: its best value hardly depends on their number."""
PATIENCE = 2
"""Steps without a lower loss after which the search ends: weaker regularisation costs most and rarely helps."""
LARGE = 2**27
"""Products of a fit from which on a second thread gains more than it costs."""
SLACK = 1.03
"""Of strengths whose losses differ by less than this factor the strongest is taken: more samples would favour it."""
SEARCHING = 1e-3
"""Tolerance of the fits that choose C, which compare losses only."""
CONVERGED = 1e-3, 5e-3
"""Largest tolerance of a fit that is judged, and what it is times the number of classes.

The gradient of the mean loss is spread over the classes: with 77 of them a fixed 0.001 ends a fit
that hardly began. """
APART = -1
"""The fold of samples that have no part in cross-validation."""
FLOOR = np.log(1e-12)
"""Log-probability of a class that a training fold lacks."""


def linear_probe(
    states: Array, labels: npt.ArrayLike, folds: int = 5, seed: int = 0
) -> ProbeScore:
    """Return how well a linear classifier reads `labels` from `states`, cross-validated.

    `states` is `[N, D]`, `labels` `[N]` of any type. Rows are scaled to unit norm, features
    standardised on the training folds, and multinomial logistic regression (L2) fitted. Its C, one
    of 11 values from 0.0001 to 10, is the smallest with a log-loss within 3 % of the lowest on
    folds held out of the training folds: no sample has a part in choosing the C it is judged with.
    With more than 1,500 samples, about 1,500 of them, stratified by class, choose C. Folds are
    stratified and depend on labels and seed only, so that layers are compared on equal splits.
    Accuracy in 0 ... 1. Raises `LayerscopeError` for non-finite states, fewer than 3 folds, and
    fewer than 2 classes with enough members.

    Source: Alain, Bengio 2016, Understanding Intermediate Layers Using Linear Classifier Probes.

    >>> labels = np.repeat(["praise", "blame"], 15)
    >>> states = np.random.default_rng(0).normal(size=(30, 4)) + np.where(labels == "praise", 2, -2)[:, None]
    >>> linear_probe(states, labels).mean
    1.0
    """
    return score_of(*linear_probe_hits(states, labels, folds, seed))


def linear_probe_hits(
    states: Array, labels: npt.ArrayLike, folds: int, seed: int
) -> tuple[Bools, Numbers, int, tuple[float, ...], tuple[float, ...]]:
    """Return which held-out predictions of `linear_probe` are right, for pairing layers, and the fold of each, `[n]`.

    After them the number of samples left out, whose class has fewer members than there are folds,
    each fold's C, and its log-loss over the other folds.
    """
    rows, classes, skipped = usable_rows(states, labels, folds, least=3)
    fold = stratified(classes, folds, seed)
    right, strengths, losses = linearly_judged(rows, classes, fold, seed)
    return right, fold, skipped, strengths, losses


def shifted_probe(
    states: Array,
    labels: npt.ArrayLike,
    target: Array,
    target_labels: npt.ArrayLike,
    *,
    folds: int = 5,
    seed: int = 0,
) -> tuple[ProbeScore, ProbeScore]:
    """Return the score of `linear_probe` on states `[N, D]`, and that of one probe of them all on `target` `[M, D]`.

    No sample of the target has a part in the second probe: it is fitted, scaled and its C chosen on
    `states` alone. Labels are compared as text. Target samples of a class that the probe does not
    know are left out, as many as `n_skipped`, and its score has no folds. Raises `LayerscopeError`
    as `linear_probe` does, and where none is left.

    Source: Uselis, Oh 2025, Intermediate Layer Classifiers for OOD Generalization.

    >>> from layerscope.probes.linear import shifted_probe
    >>> labels = np.repeat(["praise", "blame"], 15)
    >>> states = np.random.default_rng(0).normal(size=(30, 4)) + np.where(labels == "praise", 2, -2)[:, None]
    >>> [score.mean for score in shifted_probe(states, labels, -states, labels)]  # what meant praise now means blame
    [1.0, 0.0]
    """
    rows, classes, skipped = usable_rows(states, labels, folds, least=3)
    names, sizes = np.unique(np.asarray(labels), return_counts=True)
    numbers = {str(name): number for number, name in enumerate(names[sizes >= folds])}
    judged = np.array(
        [numbers.get(str(label), -1) for label in np.asarray(target_labels)]
    )
    kept = judged >= 0
    n = len(rows)
    if not kept.any():
        raise LayerscopeError(
            f"no target sample has a label for which the source has {folds} samples: label more"
        )
    others = unit_rows(as_finite64(target, "target")).cpu().numpy()[kept]
    fold = np.concatenate(
        [stratified(classes, folds, seed), np.full(len(others), APART)]
    )
    every = np.concatenate([classes, judged[kept]])
    right, strengths, losses = linearly_judged(
        np.concatenate([rows, others]), every, fold, seed
    )
    source = score_of(right[:n], fold[:n], skipped, strengths, losses)
    left_out = int((~kept).sum())
    return source, score_of(right[n:], fold[n:], left_out)


def linearly_judged(
    rows: Numbers,
    classes: Numbers,
    fold: Numbers,
    seed: int,
    only: Sequence[int] | None = None,
) -> tuple[Bools, tuple[float, ...], tuple[float, ...]]:
    """Return which samples are classified rightly where their fold is held out, `[n]`, and the C and loss of each fold.

    `fold` `[n]` numbers the fold of each sample from 0 on, three folds or more. The C of a fold is
    that of the lowest log-loss over the other folds, each held out in turn, so that no sample has a
    part in the C it is judged with. Samples of fold `APART` are in none: a probe of all others
    judges them, its C that of the folds together. With `only` some folds are judged and no others;
    `right` is False elsewhere.
    """
    from sklearn import config_context

    count = int(classes.max()) + 1
    right = np.zeros(len(classes), dtype=bool)
    inside = fold != APART
    held = range(int(fold.max()) + 1) if only is None else only
    threads = None if inside.sum() * rows.shape[1] * count >= LARGE else 1
    # of a small fit the look at its parameters is a tenth
    unchecked = config_context(skip_parameter_validation=True)
    with threadpool_limits(threads), unchecked:
        losses = _losses(rows[inside], classes[inside], fold[inside], seed, held)
        best = _strongest(losses)
        chosen = tuple(STRENGTHS[i] for i in best)
        strengths = dict(zip(held, chosen, strict=True))
        if not inside.all():
            strengths[APART] = STRENGTHS[int(_strongest(losses.sum(1)))]
        for number, strength in strengths.items():
            test = fold == number
            train = inside & ~test
            probe = _Probe(rows[train], classes[train])
            probe.fit(strength, min(CONVERGED[0], CONVERGED[1] / count))
            logs = probe.log_probabilities(probe.scaled(rows[test]), count)
            right[test] = logs.argmax(1) == classes[test]
    lowest = np.take_along_axis(losses, best[None], 0)[0]
    return right, chosen, tuple(map(float, lowest))


def _strongest(losses: Numbers) -> Numbers:
    """Return the index of the smallest C whose loss is about the lowest, along the first axis."""
    is_near = losses <= SLACK * losses.min(0)
    return np.asarray(np.argmax(is_near, axis=0))


def _losses(
    rows: Numbers, classes: Numbers, fold: Numbers, seed: int, held: Sequence[int]
) -> Numbers:
    """Return the log-loss of each C that was tried, over the folds other than each that is `held`, `[tried, held]`.

    A probe trained without two neighbouring folds is checked on each of them for the other, so that
    every fit is used twice; each is refitted from strong regularisation to weak, starting from its
    last weights.
    """
    few = thinned(classes, fold, seed)
    rows = rows[few]
    classes = classes[few]
    fold = fold[few]
    folds = int(fold.max()) + 1
    count = int(classes.max()) + 1
    searches = []
    for one in range(folds):
        pair = one, (one + 1) % folds
        if {*pair} & {*held}:
            train = ~np.isin(fold, pair)
            probe = _Probe(rows[train], classes[train])
            checks = []
            for out, judged in (pair, pair[::-1]):
                there = fold == judged
                checks.append((out, probe.scaled(rows[there]), classes[there]))
            searches.append((probe, checks))
    losses: list[Numbers] = []
    for strength in STRENGTHS:
        loss = np.zeros(folds)
        for probe, checks in searches:
            probe.fit(strength, SEARCHING)
            for out, scaled, wanted in checks:
                logs = probe.log_probabilities(scaled, count)
                loss[out] -= logs[np.arange(len(wanted)), wanted].mean()
        losses.append(loss[list(held)])
        if (len(losses) - 1 - np.argmin(losses, axis=0)).min() >= PATIENCE:
            break
    return np.stack(losses)


def thinned(
    classes: Numbers, fold: Numbers, seed: int, most: int = SEARCHED
) -> Numbers:
    """Return about `most` samples: all, or an even share of every class in every fold, one at least."""
    n = len(classes)
    if n <= most:
        return np.arange(n)
    draw = np.random.default_rng(seed).random(n)
    order = np.lexsort((draw, classes, fold))
    cell = (fold * (int(classes.max()) + 1) + classes)[order]
    first = np.unique(cell, return_index=True)[1]
    spread = np.linspace(0, n - 1, most).astype(int)
    kept = np.union1d(spread, first)
    return np.sort(order[kept])


class _Probe:
    """A logistic regression of some samples that can be fitted again with another C, from where it is."""

    def __init__(self, rows: Numbers, classes: Numbers) -> None:
        from sklearn.linear_model import LogisticRegression
        from sklearn.preprocessing import StandardScaler

        self.scaler: Any = StandardScaler().fit(rows)
        self.rows = self.scaled(rows)
        self.classes = classes
        self.model: Any = LogisticRegression(max_iter=1000, warm_start=True)
        self.known = np.unique(classes)

    def fit(self, strength: float, tolerance: float) -> None:
        """Fit with another C; samples of one class leave nothing to fit."""
        if len(self.known) > 1:
            self.model.set_params(C=strength, tol=tolerance).fit(
                self.rows, self.classes
            )

    def log_probabilities(self, scaled: Numbers, count: int) -> Numbers:
        """Return log-probabilities `[n, count]` of the classes from 0 on, for rows that were scaled."""
        from scipy.special import log_softmax

        logits = np.zeros((len(scaled), 1))
        if len(self.known) > 1:
            logits = (scaled @ self.model.coef_.T + self.model.intercept_).astype(float)
        # scikit-learn has a single column where there are two classes
        if len(self.known) == 2:
            logits = np.concatenate([np.zeros_like(logits), logits], axis=1)
        logs = np.full((len(scaled), count), FLOOR)
        logs[:, self.known] = np.maximum(log_softmax(logits, axis=1), FLOOR)
        return logs

    def scaled(self, rows: Numbers) -> Numbers:
        """Return standardised features, in the precision in which fitting takes half the time."""
        return np.asarray(self.scaler.transform(rows), dtype=np.float32)


LINEAR_PROBE = Metric(
    linear_probe,
    FromLabels(linear_probe),
    unit="%",
    reading="cross-validated accuracy",
    meaning="Cross-validated accuracy of a logistic regression from a layer's pooled states to your labels; its "
    "regularisation is chosen inside every training fold.",
    direction="High: the labels can be read off linearly. This one is a verdict, for these labels.",
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
    setting=True,
    beside=("linear_probe",),
)

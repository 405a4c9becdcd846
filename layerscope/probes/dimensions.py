"""The linear probe on fewer dimensions: on the principal components of states, fitted inside the folds that judge."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from layerscope.metrics.arrays import Array, unit_rows
from layerscope.probes.linear import linearly_judged
from layerscope.probes.scores import ProbeScore, score_of, stratified, usable_rows


def components_probe(
    states: Array, labels: npt.ArrayLike, dims: Sequence[int], folds: int = 5, seed: int = 0
) -> dict[int, ProbeScore]:
    """Return the score of `linear_probe` on the first principal components of states, by their number.

    `states` is `[N, D]`, of which rows are scaled to unit norm, `labels` `[N]` of any type, `dims` numbers of at most
    D. The components of a fold are those of all others; folds are those of `linear_probe`. Components are turned at
    random, so that all are of one size: the probe standardises features, and would blow the least up. 0 ... 1.

    Source: Jolliffe 2002, Principal component analysis.

    >>> from layerscope.probes.dimensions import components_probe
    >>> labels = np.repeat(["praise", "blame"], 15)
    >>> states = np.random.default_rng(0).normal(size=(30, 4)) + np.where(labels == "praise", 2, -2)[:, None]
    >>> components_probe(states, labels, [1])[1].mean
    1.0
    """
    rows, classes, skipped = usable_rows(states, labels, folds, least=3)
    fold = stratified(classes, folds, seed)
    right = {number: np.zeros(len(fold), dtype=bool) for number in dims}
    for held in range(folds):
        train = rows[fold != held]
        centred = rows - train.mean(0)
        _, vectors = np.linalg.eigh(np.cov(train.T))
        for number in dims:
            turn, _ = np.linalg.qr(np.random.default_rng(seed).normal(size=(number, number)))
            found = unit_rows(torch.from_numpy(centred @ vectors[:, -number:] @ turn))
            right[number] |= linearly_judged(found.numpy(), classes, fold, seed, only=(held,))[0]
    return {number: score_of(found, fold, skipped) for number, found in right.items()}

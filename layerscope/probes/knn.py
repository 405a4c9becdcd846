"""The nearest-neighbour probe (kNN)."""

import numpy as np
import numpy.typing as npt

from layerscope.core.errors import LayerscopeError
from layerscope.metrics.arrays import Array
from layerscope.metrics.metric import Metric
from layerscope.probes.scores import (
    FromLabels,
    ProbeScore,
    score_of,
    stratified,
    usable_rows,
)

NEIGHBOURS = 10
_DISTANCES_MB = 8  # scikit-learn would hold the distances between all samples at once


def knn_probe(
    states: Array,
    labels: npt.ArrayLike,
    k: int | None = None,
    folds: int = 5,
    seed: int = 0,
) -> ProbeScore:
    """Return the cross-validated accuracy of a majority vote of the `k` nearest neighbours by cosine.

    `states` is `[N, D]`, `labels` `[N]` of any type; `k` None is 10, or all where there are fewer;
    neighbours come from the training folds, which are those of `linear_probe`; a tie goes to the
    class of the nearer ones. 0 ... 1.

    Source: Cover, Hart 1967; Wu et al. 2018, Unsupervised Feature Learning via Non-Parametric
    Instance Discrimination.

    >>> labels = np.repeat(["praise", "blame"], 15)
    >>> states = np.random.default_rng(0).normal(size=(30, 4)) + np.where(labels == "praise", 2, -2)[:, None]
    >>> knn_probe(states, labels, k=3).mean
    1.0
    """
    from sklearn import config_context
    from sklearn.neighbors import KNeighborsClassifier

    rows, classes, skipped = usable_rows(states, labels, folds)
    smallest = len(rows) - -(-len(rows) // folds)
    k = min(NEIGHBOURS, smallest) if k is None else k
    if not 1 <= k <= smallest:
        raise LayerscopeError(
            f"k={k} neighbours out of {smallest} training samples: give k from 1 to {smallest}"
        )

    right = np.zeros(len(classes), dtype=bool)
    fold = stratified(classes, folds, seed)
    # One vote for each neighbour, nearest first; what the nearer ones have more only decides
    # between equal counts.
    votes = 1 + 0.5 ** np.arange(1, k + 1)
    # Between unit rows Euclidean order is cosine order, and the faster of the two.
    nearest = KNeighborsClassifier(
        n_neighbors=k, algorithm="brute", weights=lambda d: np.tile(votes, (len(d), 1))
    )
    for test in (fold == number for number in range(folds)):
        with config_context(working_memory=_DISTANCES_MB):
            right[test] = (
                nearest.fit(rows[~test], classes[~test]).predict(rows[test])
                == classes[test]
            )
    return score_of(right, fold, skipped)


KNN_PROBE = Metric(
    knn_probe,
    FromLabels(knn_probe),
    title="kNN probe",
    unit="%",
    reading="cross-validated accuracy",
    meaning="Cross-validated accuracy of the vote of a sample's nearest neighbours by cosine similarity.",
    direction="High: samples of a label lie together, as retrieval needs them.",
)

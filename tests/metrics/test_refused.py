"""What a metric cannot be computed from is refused in one sentence that names the value."""

import numpy as np
import pytest
import torch
from typed import refused

from layerscope import metrics
from layerscope.metrics.prompt_entropy import entropy_of_grams

X = np.random.default_rng(0).standard_normal((11, 8))
FEW, NARROW = X[:5], X[:, :2]
VIEWS = X[:6].reshape(3, 2, 8)
TOKENS = np.ones((2, 5, 3))
TOPS = np.zeros((5, 6, 4), dtype=int)
LABELS = np.arange(11) % 3
LAYERS = X[:6, :, None].repeat(4, 2)
BROKEN = np.where(np.arange(8)[:, None] == 1, np.nan, LAYERS)
NAN = np.array([1.0, np.nan])

REFUSED = [
    ("discard=-0.1 is not a share", lambda: metrics.intrinsic_dimension(X, -0.1)),
    ("1 sample", lambda: metrics.infonce(X[:1], X[:1])),
    ("a has 11 rows and b has 5", lambda: metrics.infonce(X, FEW)),
    ("temperature=0", lambda: metrics.infonce(X, X, temperature=0)),
    ("equal leading", lambda: metrics.dime(np.stack([X, X]), X)),
    ("3 samples of 1 views", lambda: metrics.lidar(VIEWS[:, :1])),
    ("delta=0", lambda: metrics.lidar(VIEWS, delta=0)),
    ("bandwidth=0", lambda: metrics.cka(X, X, "rbf", bandwidth=0)),
    (
        "rows='units'.*did you mean unit",
        lambda: metrics.matrix_entropy(X, rows="units"),
    ),
    (r"Z has shape \(8,\)", lambda: metrics.matrix_entropy(X[0])),
    (
        r"mask has shape \(2, 4\) and tokens \(2, 5, 3\)",
        lambda: metrics.prompt_entropy(TOKENS, np.ones((2, 4))),
    ),
    (r"alpha=0\.5 needs singular values", lambda: grams(alpha=0.5)),
    (r"Z has shape \(8,\)", lambda: metrics.anisotropy(X[0])),
    (
        r"fit=\(10, 100\) holds fewer than two of the ranks 1 ... 8",
        lambda: metrics.alpha_req(X),
    ),
    ("8 features and b has 2", lambda: metrics.infonce(X, NARROW)),
    ("permutations=0", lambda: metrics.dime(X, X, permutations=0)),
    (
        r"shape \(1, 5\) are not rows that reorder 0 \.\.\. 4",
        lambda: metrics.dime(FEW, FEW, permutations=np.array([[0, 1, 2, 3, 3]])),
    ),
    ("CKA over 3 rows", lambda: metrics.cka(X[:3], X[:3])),
    ("batch of 3 out of 11", lambda: metrics.cka_minibatch(X, X, 4)),
    ("X has 8 features and Y has 2", lambda: metrics.cosine_similarity(X, NARROW)),
    ("variance=99 is not a share", lambda: metrics.svcca(X, X, 99)),
    (
        "k=11 neighbours among 11 rows do not exist: give k from 1 to 10",
        lambda: metrics.mutual_knn(X, X, 11),
    ),
    (
        r"layer 8 does not exist: these states have layers 0\.\.7",
        lambda: metrics.cosine_to(LAYERS, 8),
    ),
    ("CKA over 3 rows", lambda: metrics.similarity_matrix(LAYERS[:3])),
    (
        "states has 6 samples and others has 5",
        lambda: metrics.similarity_matrix(LAYERS, others=LAYERS[:5]),
    ),
    (
        r"others has shape \(11, 8\)",
        lambda: metrics.similarity_matrix(LAYERS, others=X),
    ),
    (
        "cka has no option 'debised', did you mean debiased.*it takes",
        lambda: metrics.similarity_matrix(LAYERS, debised=False),
    ),
    (
        "cca has no option 'debiased': it takes none",
        lambda: metrics.similarity_matrix(LAYERS, "cca", debiased=False),
    ),
    (
        "k=10 neighbours among 6 rows",
        lambda: metrics.similarity_matrix(LAYERS, "mutual_knn"),
    ),
    (r"layers \[1\]", lambda: metrics.similarity_matrix(BROKEN)),
    ("at least one layer", lambda: metrics.saturation_layer(np.empty((3, 0)))),
    (
        r"predictions has shape \(5, 6, 4\) and labels \(5,\)",
        lambda: metrics.layer_accuracy(TOPS, TOPS[:, 0, 0]),
    ),
    ("nll holds 1", lambda: metrics.perplexity(NAN)),
    ("epsilon=2", lambda: metrics.effective_depth([0.5], 2)),
    ("two classes", lambda: metrics.neural_collapse(X, np.zeros(11))),
    ("3 tokens have no 4-gram", lambda: metrics.diversity([1, 2, 3])),
    ("how many samples leave", lambda: metrics.exit_speedup([0, 0])),
    ("8 classes", lambda: metrics.label_probability(X[:, None], LABELS + 8)),
]


def grams(alpha):
    return entropy_of_grams(torch.eye(3)[None], torch.tensor([3]), alpha, True)


@pytest.mark.parametrize("sentence, call", REFUSED)
def test_refused(sentence, call):
    with refused(sentence):
        call()

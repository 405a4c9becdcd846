"""Similarities of every two layers."""

from __future__ import annotations

from layerscope.metrics.catalogue.metric import JIANG, Metric

PAIRS = (
    Metric(
        "cosine_similarity",
        "pairs",
        "cosine",
        "1: two layers hold the same directions",
        "Cosine between the vectors that two layers give one sample, each layer centred by its own mean over the "
        "samples, averaged over samples; from −1 to 1.",
        "1: the two layers hold the same directions. It tells how far a layer is from another, not how good it is.",
        JIANG,
    ),
    Metric(
        "cka",
        "pairs",
        "CKA",
        "1: two layers hold the same geometry",
        "Centred kernel alignment of two layers, linear kernel, debiased: how alike the samples lie to each other, "
        "whatever the rotation and scale; at most 1, near 0 (or slightly below) for unrelated layers.",
        "1: the two layers hold the same geometry of samples.",
        "Kornblith et al. 2019; debiased as in Song et al. 2012",
    ),
)

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
    Metric(
        "angular_distance",
        "pairs",
        "angular distance",
        "share of a half turn; 0: the same directions",
        (
            "Angle between the vectors that two layers give one sample, each layer centred by its own mean over "
            "the samples, as a share of a half turn, averaged over samples; from 0 to 1, right angles at 1/2."
        ),
        "0: the two layers hold the same directions. Neighbouring layers that stay near 0 change little.",
        "Gromov et al. 2024, The Unreasonable Ineffectiveness of the Deeper Layers",
        default=False,
    ),
    Metric(
        "cka_rbf",
        "pairs",
        "RBF CKA",
        "1: two layers hold the same neighbourhoods",
        (
            "Centred kernel alignment with a Gaussian kernel as wide as the median distance, debiased: how alike "
            "near samples lie to each other; at most 1, near 0 (or slightly below) for unrelated layers."
        ),
        "1: the two layers hold the same geometry of samples. Far samples count less than in linear CKA.",
        "Kornblith et al. 2019; debiased as in Song et al. 2012",
        default=False,
    ),
    Metric(
        "cca",
        "pairs",
        "CCA",
        "1: a linear map turns one layer into the other",
        (
            "Mean canonical correlation of two layers; from 0 to 1. Noise has some too, the more the fewer samples "
            "there are: with up to twice as many samples as features it is left out."
        ),
        "1: each layer is a linear map of the other. Small directions count as much as large ones.",
        "Hotelling 1936; Raghu et al. 2017",
        default=False,
    ),
    Metric(
        "svcca",
        "pairs",
        "SVCCA",
        "1: a linear map turns main directions into each other",
        (
            "Mean canonical correlation of the principal components that explain 99 % of the variance of each "
            "layer; from 0 to 1, and left out with up to twice as many samples as features."
        ),
        "1: the main directions of each layer are a linear map of those of the other.",
        "Raghu et al. 2017, SVCCA",
        default=False,
    ),
    Metric(
        "pwcca",
        "pairs",
        "PWCCA",
        "1: a linear map turns one layer into the other",
        (
            "Mean of the canonical correlations of two layers, weighted by how much of the first layer each "
            "accounts for; from 0 to 1, and left out with up to twice as many samples as features."
        ),
        "1: what matters in the first layer is a linear map of the second. It is not symmetric.",
        "Morcos et al. 2018, Insights on Representational Similarity",
        default=False,
    ),
    Metric(
        "procrustes",
        "pairs",
        "Procrustes",
        "1: a rotation turns one layer into the other",
        (
            "Nuclear norm of the product of two layers, both centred and of unit size: how well the best rotation "
            "lays one over the other; from 0 to 1."
        ),
        "1: the two layers are the same but for a rotation and a scale.",
        "Schönemann 1966; Ding et al. 2021",
        default=False,
    ),
    Metric(
        "rsa",
        "pairs",
        "RSA",
        "1: the same pairs of samples are far apart",
        (
            "Spearman correlation between the dissimilarities (1 minus the correlation of rows) of every two "
            "samples in two layers; from −1 to 1."
        ),
        "1: two layers order pairs of samples by distance in the same way.",
        "Kriegeskorte et al. 2008, Representational Similarity Analysis",
        default=False,
    ),
    Metric(
        "pnka",
        "pairs",
        "PNKA",
        "1: each sample lies alike among the others",
        (
            "Cosine between the rows of the two centred Gram matrices that belong to one sample, averaged over "
            "samples; from −1 to 1."
        ),
        "1: every sample is as near to the others in one layer as in the other.",
        "Kolling et al. 2023, Pointwise Representational Similarity",
        default=False,
    ),
    Metric(
        "mutual_knn",
        "pairs",
        "mutual kNN",
        "share of common nearest neighbours",
        (
            "Share of a sample's 10 nearest neighbours by cosine that two layers have in common, averaged over "
            "samples; from 0 to 1, 10 / (N − 1) by chance."
        ),
        "1: retrieval finds the same samples in both layers.",
        "Huh et al. 2024, The Platonic Representation Hypothesis",
        default=False,
    ),
)

"""Metrics of the pooled states of all samples."""

from __future__ import annotations

from layerscope.metrics.catalogue.metric import SKEAN, Metric

POOLED = (
    Metric(
        "dataset_entropy",
        "pooled",
        "dataset entropy",
        "nats; high: samples spread out",
        "The same entropy over the pooled states of all samples instead of the tokens of one; from 0 to "
        "log min(samples, width).",
        "High: samples spread over many directions. Which end serves a task differs by model and data.",
        SKEAN,
        True,
    ),
    Metric(
        "effective_rank",
        "pooled",
        "effective rank",
        "dimensions in use",
        "Exponential of the entropy of the singular values, normalised to sum 1; from 1 to min(samples, width).",
        "High: more dimensions are in use. It is no sign of quality by itself: noise has full rank.",
        "Roy, Vetterli 2007, The Effective Rank",
        True,
    ),
    Metric(
        "rankme",
        "pooled",
        "RankMe",
        "dimensions in use",
        "Effective rank with 1e-7 added to each share of the singular values, as it was published; from 1 to "
        "min(samples, width).",
        "High: more dimensions are in use. Proposed for choosing among self-supervised models of one kind; a "
        "hypothesis for layers.",
        "Garrido et al. 2023, RankMe",
        default=False,
    ),
    Metric(
        "anisotropy",
        "pooled",
        "anisotropy",
        "share of the variance in one direction",
        "Share of the variance of the pooled states, around their mean, that lies in its largest direction; from "
        "1 / min(samples − 1, width) to 1.",
        "High: samples differ along a line more than in all other directions together, as in the middle of many "
        "decoders.",
        "Razzhigaev et al. 2024, The Shape of Learning",
        default=False,
    ),
    Metric(
        "intrinsic_dimension",
        "pooled",
        "intrinsic dimension",
        "dimensions of the surface the samples lie on",
        "TwoNN: from how much farther than its nearest neighbour a sample's second neighbour lies, over all samples, "
        "the tenth with the largest ratios left out; above 0.",
        "High: locally, samples vary in more directions. It may be far below the effective rank, which counts the "
        "directions of the whole cloud.",
        "Facco et al. 2017, Estimating the intrinsic dimension by a minimal neighborhood information",
        default=False,
    ),
    Metric(
        "alpha_req",
        "pooled",
        "α-ReQ",
        "exponent; low: variance in many directions",
        "Exponent α of the power law i^−α that the eigenvalues of the pooled states' covariance follow, fitted from "
        "rank 10 to 100, or to as many as there are.",
        "Low: the spectrum falls slowly. Values near 1 were proposed as a sign of good states: a hypothesis.",
        "Agrawal et al. 2022, α-ReQ; fitted as in Stringer et al. 2019",
        default=False,
    ),
    Metric(
        "nesum",
        "pooled",
        "NESum",
        "directions, in units of the largest",
        "Sum of the eigenvalues of the pooled states' covariance over the largest: one over anisotropy; from 1 to "
        "min(samples − 1, width).",
        "High: variance is spread over many directions.",
        "He, Ozay 2022, Exploring the Gap between Collapsed and Whitened Features in Self-Supervised Learning",
        default=False,
    ),
)

"""Metrics of the tokens of each sample, measured inside the pass."""

from __future__ import annotations

from layerscope.metrics.catalogue.metric import SKEAN, SUN, Metric

TOKENS = (
    Metric(
        "prompt_entropy",
        "tokens",
        "prompt entropy",
        "nats; low: a sample's tokens are compressed",
        "Entropy of the normalised eigenvalues of the Gram matrix of one sample's tokens, each token scaled to "
        "unit length; from 0 (all tokens point one way) to log min(tokens, width). Averaged over samples.",
        "Low: the tokens of a sample are compressed. Often a valley in the middle layers, and in two published "
        "language models the valley lies near the best layers; a hypothesis elsewhere.",
        SKEAN,
        True,
    ),
    Metric(
        "curvature",
        "tokens",
        "curvature",
        "radians; low: tokens follow a smooth path",
        "Mean angle between the steps from one token to the next and the steps after them; from 0 (a straight "
        "line) to π. A sample needs three tokens.",
        "Low: tokens follow a smooth path. Random steps in a wide space give about π/2, and steps to independent "
        "points 2π/3.",
        SKEAN,
        True,
    ),
    Metric(
        "norm_mean",
        "tokens",
        "token norm",
        "mean length of a token's state",
        "Mean Euclidean norm of a sample's tokens; from 0. Averaged over samples.",
        "It grows with depth where blocks add to what they read; after a norm it says nothing.",
        SUN,
        default=False,
    ),
    Metric(
        "norm_median",
        "tokens",
        "median norm",
        "length of the middle token's state",
        "Median Euclidean norm of a sample's tokens; from 0. Averaged over samples.",
        "Far below the mean norm: a few tokens carry most of it.",
        SUN,
        default=False,
    ),
    Metric(
        "norm_max",
        "tokens",
        "largest norm",
        "length of the longest token's state",
        "Largest Euclidean norm among a sample's tokens; from 0. Averaged over samples.",
        "Far above the median norm: massive activations.",
        SUN,
        default=False,
    ),
    Metric(
        "sink_share",
        "tokens",
        "sink share",
        "share of tokens of more than 10 times their sample's median norm",
        "Share of a sample's tokens whose norm is more than 10 times the sample's median norm at that layer; from 0 to "
        "1. Averaged over samples.",
        "Above 0: a few tokens carry most of the norm. They rule means over tokens and entropies of raw states; "
        "--exclude-sinks leaves them out.",
        SUN,
        default=False,
    ),
)

COUNTS = (
    Metric(
        "sinks",
        "tokens",
        "sinks",
        "tokens of more than 10 times their sample's median norm",
        "Number of a sample's tokens whose norm is more than 10 times the sample's median norm at that layer; with "
        "--exclude-sinks they are left out of entropies and means. Averaged over samples.",
        "Above 0: a few tokens carry most of the norm, as in many large language models.",
        SUN,
    ),
    Metric(
        "zero_steps",
        "tokens",
        "zero steps",
        "steps from a token to an equal one",
        "Number of a sample's steps between neighbouring tokens that have no length and therefore no angle. "
        "Averaged over samples.",
        "Above 0: neighbouring tokens are the same vector, as repeated words are at layer 0.",
        "counted beside curvature",
    ),
)
"""What is counted in passing and stands in a run's table though nobody asked for it by name."""

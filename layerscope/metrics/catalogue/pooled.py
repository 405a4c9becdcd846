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
)

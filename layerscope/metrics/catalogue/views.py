"""Metrics that compare a sample with its augmentations."""

from __future__ import annotations

from layerscope.metrics.catalogue.metric import OORD, Metric

VIEWS = (
    Metric(
        "infonce",
        "views",
        "InfoNCE",
        "nats; low: views of a sample find each other",
        "Cross-entropy of finding a sample's augmented view among those of all samples of its block by cosine "
        "similarity, temperature 0.1, both ways averaged; 0 and up. Blocks of another size give other values.",
        "Low: augmentations leave a sample where it is. Its relation to task scores changes sign with the corpus.",
        OORD,
        True,
    ),
    Metric(
        "infonce_bound",
        "views",
        "InfoNCE bound",
        "nats; high: views share more",
        "log N − InfoNCE for blocks of N samples: a lower bound of the information that two views of a sample "
        "share; at most log N. Below 0 it says nothing, as information never is.",
        "High: the views share more. It is InfoNCE upside down.",
        OORD,
    ),
    Metric(
        "lidar",
        "views",
        "LiDAR",
        "directions that tell samples apart",
        "Effective rank of linear discriminant analysis with every sample as a class and its views as members: the "
        "scatter between samples, whitened by the scatter within; from 1 to min(width, samples − 1).",
        "High: more directions tell samples apart than augmentations disturb. A hypothesis for quality.",
        "Thilak et al. 2024, LiDAR",
        True,
    ),
    Metric(
        "dime",
        "views",
        "DiME",
        "nats; high: true pairs share more than random ones",
        "Difference of matrix-based entropies: joint entropy of samples with randomly permuted views minus that "
        "with their own views.",
        "Above 0: true pairs share more than random ones. Its relation to task scores changes sign with the corpus.",
        "Skean et al. 2023, DiME",
        True,
    ),
)

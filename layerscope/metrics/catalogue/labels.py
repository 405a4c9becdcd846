"""Probes of each layer for given labels."""

from __future__ import annotations

from layerscope.metrics.catalogue.metric import Metric

LABELS = (
    Metric(
        "linear_probe",
        "labels",
        "linear probe",
        "cross-validated share right",
        "Cross-validated accuracy of a logistic regression from a layer's pooled states to your labels; its "
        "regularisation is chosen inside every training fold.",
        "High: the labels can be read off linearly. This one is a verdict, for these labels.",
        "Alain, Bengio 2016, Understanding Intermediate Layers Using Linear Classifier Probes",
    ),
    Metric(
        "knn_probe",
        "labels",
        "kNN probe",
        "cross-validated share right",
        "Cross-validated accuracy of the vote of a sample's nearest neighbours by cosine similarity.",
        "High: samples of a label lie together, as retrieval needs them.",
        "Cover, Hart 1967; weights as in Wu et al. 2018",
    ),
)

BESIDE = (
    Metric(
        "linear_probe_c",
        "labels",
        "linear probe's C",
        "median over the folds; small: strong regularisation",
        "Inverse strength of the linear probe's L2 regularisation, chosen by the log-loss on folds held out of the "
        "training folds, from 0.0001 to 10.",
        "Low: few of the features carry over to other samples, or the samples are few.",
        "Stone 1974, Cross-validatory choice and assessment of statistical predictions",
    ),
)
"""What stands in the table beside the linear probe."""

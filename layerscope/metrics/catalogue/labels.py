"""Probes of each layer for given labels."""

from __future__ import annotations

from layerscope.metrics.catalogue.metric import Metric

LABELS = (
    Metric(
        "linear_probe",
        "labels",
        "linear probe",
        "cross-validated share right",
        "Cross-validated accuracy of a logistic regression from a layer's pooled states to your labels.",
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

"""Every metric a run can hold: one line each, with what it is computed from and what it says."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from layerscope.errors import LayerscopeError, choices

Needs = Literal["tokens", "pooled", "views", "pairs", "lens", "labels"]


@dataclass(frozen=True)
class Metric:
    """What a metric is called, what it is computed from, and how to read it."""

    name: str
    needs: Needs
    title: str
    reading: str
    """A few words for a terminal: unit, and what an end of the scale means."""
    meaning: str
    """How it is computed, and its range."""
    direction: str
    """Which end means what: a description or a hypothesis, never a verdict."""
    source: str
    seven: bool = False
    """One of the seven quality measures of Layer by Layer."""


_SKEAN = "Skean et al. 2025, Layer by Layer"
_JIANG = "Jiang, Zhou, Zhu 2025, Tracing Representation Progression"
_OORD = "van den Oord et al. 2018, Representation Learning with Contrastive Predictive Coding"

METRICS = {
    m.name: m
    for m in (
        Metric(
            "prompt_entropy",
            "tokens",
            "prompt entropy",
            "nats; low: a sample's tokens are compressed",
            "Entropy of the normalised eigenvalues of the Gram matrix of one sample's tokens, each token scaled to "
            "unit length; from 0 (all tokens point one way) to log min(tokens, width). Averaged over samples.",
            "Low: the tokens of a sample are compressed. Often a valley in the middle layers, and in two published "
            "language models the valley lies near the best layers; a hypothesis elsewhere.",
            _SKEAN,
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
            _SKEAN,
            True,
        ),
        Metric(
            "dataset_entropy",
            "pooled",
            "dataset entropy",
            "nats; high: samples spread out",
            "The same entropy over the pooled states of all samples instead of the tokens of one; from 0 to "
            "log min(samples, width).",
            "High: samples spread over many directions. Which end serves a task differs by model and data.",
            _SKEAN,
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
            "infonce",
            "views",
            "InfoNCE",
            "nats; low: views of a sample find each other",
            "Cross-entropy of finding a sample's augmented view among those of all samples of its block by cosine "
            "similarity, temperature 0.1, both ways averaged; 0 and up. Blocks of another size give other values.",
            "Low: augmentations leave a sample where it is. Its relation to task scores changes sign with the corpus.",
            _OORD,
            True,
        ),
        Metric(
            "infonce_bound",
            "views",
            "InfoNCE bound",
            "nats of shared information at least",
            "log N − InfoNCE for blocks of N samples: a lower bound of the information that two views of a sample "
            "share; at most log N.",
            "High: the views share more. It is InfoNCE upside down.",
            _OORD,
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
            "Above 0: true pairs share more than random ones. Its relation to task scores changes sign with the "
            "corpus.",
            "Skean et al. 2023, DiME",
            True,
        ),
        Metric(
            "cosine_similarity",
            "pairs",
            "cosine",
            "1: two layers hold the same directions",
            "Cosine between the vectors that two layers give one sample, each layer centred by its own mean over the "
            "samples, averaged over samples; from −1 to 1.",
            "1: the two layers hold the same directions. It tells how far a layer is from another, not how good it is.",
            _JIANG,
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
            "layer_accuracy",
            "lens",
            "layer accuracy",
            "share right, read through the model's head",
            "Share of right predictions when a layer's states go through all that follows the model's last block: "
            "norm, pooler and head.",
            "High: the head can already read this layer.",
            _JIANG,
        ),
        Metric(
            "perplexity",
            "lens",
            "perplexity",
            "low: the next token is expected",
            "Exponential of the mean negative log likelihood of the next token, read from a layer through the model's "
            "norm and head; from 1.",
            "Low: the next token is expected. Blind guessing gives the size of the vocabulary.",
            "exp of the mean negative log likelihood",
        ),
        Metric(
            "saturation_layer",
            "lens",
            "saturation",
            "layer from which the prediction stays",
            "Smallest layer from which the head's top prediction never changes again; from 1 to the last layer. "
            "Averaged over predictions.",
            "Low: predictions settle early, and the layers after change them no more.",
            _JIANG,
        ),
        Metric(
            "saturated",
            "lens",
            "saturated",
            "share of predictions that no longer change",
            "Share of predictions whose saturation layer is this one or an earlier one; it reaches 100 % at the last "
            "layer.",
            "High at an early layer: depth is spent on few samples.",
            _JIANG,
        ),
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
}

TRAINED = {
    m.name: m
    for m in (
        Metric(
            "label_probability",
            "lens",
            "label probability",
            "mean probability of the label, read through the model's head",
            "Softmax probability that the head gives the right answer when it reads a layer, averaged over samples or "
            "tokens; from 0 to 1.",
            "High: the layer is sure of what is right.",
            _JIANG,
        ),
        Metric(
            "cross_entropy",
            "lens",
            "cross-entropy",
            "nats; low: the label is expected",
            "Mean negative log likelihood of the label, read from a layer through the model's head; from 0. At the "
            "last layer it is the loss of the model itself.",
            "Low: the label is expected. Blind guessing gives the logarithm of the number of classes.",
            "mean negative log likelihood",
        ),
        Metric(
            "nc1",
            "lens",
            "NC1",
            "low: samples of a class lie on one point",
            "Spread of samples within their classes over that of the class means, trace(Σ_W Σ_B⁺) / K, in what the "
            "head reads of a layer; from 0, no unit.",
            "Low: states have collapsed onto their classes, as they do late in training.",
            "Papyan, Han, Donoho 2020",
        ),
        Metric(
            "effective_depth",
            "lens",
            "effective depth",
            "first layer that is accurate enough",
            "Smallest layer whose accuracy through the head is within one point of the last layer's (definition 3.1: "
            "of 100 %); from 1 to the last layer.",
            "Low: the layers after it add no accuracy, as is so, too, before anything is learnt.",
            _JIANG,
        ),
    )
}
"""What a training measures at each evaluation beside the above: a run of `profile` has none of these."""


COUNTS = {
    m.name: m
    for m in (
        Metric(
            "sinks",
            "tokens",
            "sinks",
            "tokens of more than 10 times their sample's median norm",
            "Number of a sample's tokens whose norm is more than 10 times the sample's median norm at that layer; they "
            "are left out of entropies and means here. Averaged over samples.",
            "Above 0: a few tokens carry most of the norm, as in many large language models.",
            "Sun et al. 2024, Massive Activations in Large Language Models",
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
}
"""What is counted in passing and stands in a run's table though nobody asked for it by name."""


def about(name: str) -> Metric:
    """Return what is known of a name in a run's table; of one that is not known here, its name alone."""
    return METRICS.get(name) or TRAINED.get(name) or COUNTS.get(name) or Metric(name, "pooled", name, "", "", "", "")


def rank(name: str) -> int:
    """Return the place of a metric in the order they are shown in."""
    known = [*METRICS, *TRAINED, *COUNTS]
    return known.index(name) if name in known else len(known)


def choose_metrics(asked: str | Iterable[str]) -> tuple[str, ...]:
    """Return the names of the metrics asked for: "default" (all), "seven", or names with commas between."""
    names = [n.strip() for n in asked.split(",") if n.strip()] if isinstance(asked, str) else list(asked)
    chosen: dict[str, None] = {}
    for name in names:
        if name in ("default", "all"):
            chosen |= dict.fromkeys(METRICS)
        elif name == "seven":
            chosen |= {m.name: None for m in METRICS.values() if m.seven}
        elif name in METRICS:
            chosen[name] = None
        else:
            known = ["default", "seven", *METRICS]
            raise LayerscopeError(f"metric {name!r} does not exist{choices(name, known, 'choose from')}")
    return tuple(name for name in METRICS if name in chosen)

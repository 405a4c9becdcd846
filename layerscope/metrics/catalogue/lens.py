"""What each layer says through the model's own head."""

from __future__ import annotations

from layerscope.metrics.catalogue.metric import JIANG, Metric

LENS = (
    Metric(
        "layer_accuracy",
        "lens",
        "layer accuracy",
        "share right, read through the model's head",
        "Share of right predictions when a layer's states go through all that follows the model's last block: "
        "norm, pooler and head.",
        "High: the head can already read this layer.",
        JIANG,
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
        JIANG,
    ),
    Metric(
        "saturated",
        "lens",
        "saturated",
        "share of predictions that no longer change",
        "Share of predictions whose saturation layer is this one or an earlier one; it reaches 100 % at the last "
        "layer.",
        "High at an early layer: depth is spent on few samples.",
        JIANG,
    ),
)

TRAINED = (
    Metric(
        "label_probability",
        "lens",
        "label probability",
        "mean probability of the label, read through the model's head",
        "Softmax probability that the head gives the right answer when it reads a layer, averaged over samples or "
        "tokens; from 0 to 1.",
        "High: the layer is sure of what is right.",
        JIANG,
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
        JIANG,
    ),
)
"""What a training measures at each evaluation beside the above: a run of `profile` has none of these."""

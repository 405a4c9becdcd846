import math

import torch
from torch import Tensor

from layerscope.metrics.arrays import Array, Estimate, as_finite64, as_result, mean
from layerscope.metrics.metric import Metric
from layerscope.metrics.readings import ByLayer, FromReadings, Readings


def perplexity(nll: Array) -> float | Tensor:
    """Return exp of the mean negative log-likelihood per token.

    `nll` is `[..., T]` in nats, a value a predicted token, without padding; `[...]` is from 1 on
    for probabilities.

    Source: Jelinek et al. 1977; by layer as in Tracing Representation Progression, figure 9.

    >>> round(perplexity(np.log([4.0, 4.0, 4.0])), 4)  # as unsure as between four tokens
    4.0
    """
    return as_result(as_finite64(nll, "nll", 1).mean(-1).exp())


def _perplexities(readings: Readings) -> ByLayer:
    if readings.nll is None:
        return
    for layer, losses in enumerate(readings.nll.double()):
        finite = losses[torch.isfinite(losses)]
        value = float(perplexity(finite)) if len(finite) else math.nan
        yield layer, Estimate(value, value * mean(finite).stderr, len(finite))


PERPLEXITY = Metric(
    perplexity,
    FromReadings(_perplexities, language_model=True),
    reading="low: the next token is expected",
    formula="exp(−mean of log p(next token)), p the softmax of the head's logits",
    meaning="Exponential of the mean negative log likelihood of the next token, read from a layer through the model's "
    "norm and head; from 1.",
    direction="Low: the next token is expected. Blind guessing gives the size of the vocabulary.",
    low=True,
    log=True,
)
CROSS_ENTROPY = Metric(
    how=FromReadings(),
    name="cross_entropy",
    title="cross-entropy",
    unit="nats",
    reading="nats; low: the label is expected",
    meaning="Mean negative log likelihood of the label, read from a layer through the model's head; from 0. At the "
    "last layer it is the loss of the model itself.",
    direction="Low: the label is expected. Blind guessing gives the logarithm of the number of classes.",
    source="mean negative log likelihood",
    low=True,
)

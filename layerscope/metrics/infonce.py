import math

import torch
from torch import Tensor

from layerscope.core import LayerscopeError
from layerscope.metrics.arrays import Array, as_pair64, as_result
from layerscope.metrics.factors import FromViews, Views
from layerscope.metrics.metric import Metric

TEMPERATURE = 0.1


def infonce(
    a: Array, b: Array, temperature: float = TEMPERATURE, symmetric: bool = True
) -> float | Tensor:
    """Return the InfoNCE loss of paired views: how hard it is to find each sample's other view among N.

    `a` and `b` are `[..., N, D]`, row i of both being one sample; logits are cosine similarities
    over `temperature`, the denominator running over the other view, positive included. `symmetric`
    averages a to b and b to a. The value `[...]` is in nats, >= 0, lower for more invariant states;
    it depends on N, so compare equal N only. Raises `LayerscopeError` for N < 2 and temperature <=
    0.

    Source: van den Oord et al. 2018, Contrastive Predictive Coding, equation 4; Skean et al. 2025,
    Layer by Layer.

    >>> round(infonce(np.eye(4), np.eye(4)), 4)  # each view finds its pair
    0.0001
    """
    first, second = as_pair64(a, b, ("a", "b"), "give views in one space")
    if first.shape[-2] < 2:
        raise LayerscopeError("InfoNCE over 1 sample has no negatives: give at least 2")
    if not temperature > 0:
        raise LayerscopeError(
            f"temperature={temperature} is not above 0: give a number such as 0.1"
        )
    return as_result(_loss(Views(first, second), temperature, symmetric))


def infonce_bound(
    a: Array, b: Array, temperature: float = TEMPERATURE, symmetric: bool = True
) -> float | Tensor:
    """Return log N - `infonce`, a lower bound on the mutual information of the views.

    Arguments and errors are those of `infonce`; the value `[...]` is in nats, at most log N.

    Source: van den Oord et al. 2018, Representation Learning with Contrastive Predictive Coding,
    section 2.3.

    >>> round(infonce_bound(np.eye(4), np.eye(4)), 4)  # just below ln 4
    1.3862
    """
    loss = infonce(a, b, temperature, symmetric)
    return math.log(a.shape[-2]) - loss


def _loss(
    views: Views, temperature: float = TEMPERATURE, symmetric: bool = True
) -> Tensor:
    logits = views.cosines / temperature
    positives: Tensor = torch.linalg.diagonal(logits)
    loss = (torch.logsumexp(logits, -1) - positives).mean(-1)
    if symmetric:
        backwards = (torch.logsumexp(logits, -2) - positives).mean(-1)
        loss = (loss + backwards) / 2
    return loss


INFONCE = Metric(
    infonce,
    FromViews(_loss),
    title="InfoNCE",
    unit="nats",
    reading="nats; low: views of a sample find each other",
    formula="−mean of ½ log(exp(sᵢᵢ / τ) / Σⱼ exp(sᵢⱼ / τ)) + ½ log(exp(sᵢᵢ / τ) / Σⱼ exp(sⱼᵢ / τ)), τ = 0.1, sᵢⱼ the "
    "cosine of a view of sample i and the other view of sample j",
    meaning="Cross-entropy of finding a sample's augmented view among those of all samples of its block by cosine "
    "similarity, temperature 0.1, averaged over both directions; from 0. Values depend on the size of the blocks.",
    direction="Low: augmentations leave a sample where it is. Its relation to task scores changes sign with the "
    "corpus.",
    low=True,
)
INFONCE_BOUND = Metric(
    infonce_bound,
    FromViews(lambda views: math.log(views.first.shape[-2]) - _loss(views)),
    title="InfoNCE bound",
    unit="nats",
    reading="nats; high: views share more",
    formula="log N − InfoNCE",
    meaning="log N − InfoNCE for blocks of N samples: a lower bound of the information that two views of a sample "
    "share; at most log N. Below 0 it says nothing, since information is never negative.",
    direction="High: the views share more. It is InfoNCE with its sign reversed.",
)

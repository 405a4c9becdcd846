import math

import torch
from torch import Tensor

from layerscope.core.errors import LayerscopeError
from layerscope.metrics.arrays import Array, as_pair64, as_result, unit_rows


def infonce(a: Array, b: Array, temperature: float = 0.1, symmetric: bool = True) -> float | Tensor:
    """Return the InfoNCE loss of paired views: how hard it is to find each sample's other view among N.

    `a` and `b` are `[..., N, D]`, row i of both being one sample; logits are cosine similarities over
    `temperature`, the denominator running over the other view, positive included. `symmetric` averages a to
    b and b to a. The value `[...]` is in nats, >= 0, lower for more invariant states; it depends on N, so
    compare equal N only. Float64. Raises `LayerscopeError` for non-finite input, unequal shapes, N < 2 or
    temperature <= 0.

    Source: van den Oord et al. 2018, equation 4; Skean et al. 2025, Layer by Layer, section 3.
    """
    return as_result(_loss(a, b, temperature, symmetric)[0])


def infonce_bound(a: Array, b: Array, temperature: float = 0.1, symmetric: bool = True) -> float | Tensor:
    """Return log N - `infonce`, a lower bound on the mutual information of the views.

    Arguments and errors are those of `infonce`; the value `[...]` is in nats, at most log N.

    Source: van den Oord et al. 2018, section 2.3.
    """
    loss, count = _loss(a, b, temperature, symmetric)
    return as_result(math.log(count) - loss)


def _loss(a: Array, b: Array, temperature: float, symmetric: bool) -> tuple[Tensor, int]:
    first, second = as_pair64(a, b, ("a", "b"))
    count = first.shape[-2]
    if first.shape[-1] != second.shape[-1]:
        raise LayerscopeError(f"a has {first.shape[-1]} features and b has {second.shape[-1]}: give views in one space")
    if count < 2:
        raise LayerscopeError("InfoNCE over 1 sample has no negatives: give at least 2")
    if not temperature > 0:
        raise LayerscopeError(f"temperature={temperature} is not above 0: give a number such as 0.1")
    logits = unit_rows(first) @ unit_rows(second).mT / temperature
    positives = logits.diagonal(dim1=-2, dim2=-1)
    loss = (torch.logsumexp(logits, -1) - positives).mean(-1)
    if symmetric:
        loss = (loss + (torch.logsumexp(logits, -2) - positives).mean(-1)) / 2
    return loss, count

"""How states move from layer to layer: how straight, and how far in each block."""

import torch
from torch import Tensor
from torch.linalg import vector_norm

from layerscope.core import LayerscopeError
from layerscope.metrics.arrays import Array, as_finite64, directions
from layerscope.metrics.metric import Metric
from layerscope.metrics.pairs import FromPath

_TIE = 1e-12
"""Cosines this close are equal but for their rounding."""


def straightness(states: Array) -> Tensor:
    """Return ‖h_L − h_0‖ / Σ ‖h_{ℓ+1} − h_ℓ‖ of each sample, `[...]`, 0 … 1, float64; 1 is a straight line.

    `states` is `[..., L+1, D]`. NaN where no block changes anything.

    Source: Tracing Representation Progression, assumption 1.

    >>> straightness(np.array([[0.0, 0.0], [3.0, 0.0], [3.0, 4.0]]))  # 5 of 7
    tensor(0.7143, dtype=torch.float64)
    """
    return _straightness(states)[..., -1]


def _straightness(states: Array) -> Tensor:
    """Return the straightness of the path to each layer from 1 on, `[..., L]`."""
    layers = _layers(states)
    steps = vector_norm(layers.diff(dim=-2), dim=-1)
    value: Tensor = vector_norm(
        layers[..., 1:, :] - layers[..., :1, :], dim=-1
    ) / steps.cumsum(-1)
    return value


def monotone_triples(states: Array) -> Tensor:
    """Return the share of triples ℓ₁ < ℓ₂ < ℓ₃ with cos(h_ℓ₁, h_ℓ₃) ≤ cos(h_ℓ₂, h_ℓ₃) for ℓ₃ = 2 … L, `[..., L-1]`.

    `states` is `[..., L+1, D]`; the values are float64, 0 … 1, about 1/2 by chance. Triples with a
    zero vector, as centred states that do not vary give, are left out; NaN where no triple is left.

    Source: Tracing Representation Progression, theorem 2.1.

    >>> monotone_triples(np.array([[0.0, 1.0], [1.0, 1.0], [1.0, 0.0], [1.0, 0.5]]))  # the last goes back a step
    tensor([1.0000, 0.6667], dtype=torch.float64)
    """
    layers = _layers(states, 3)
    unit = directions(layers, torch.zeros(()))
    cosines = unit @ unit.mT
    by_layer = []
    for layer in range(2, layers.shape[-2]):
        first, second = torch.triu_indices(layer, layer, 1, device=layers.device)
        earlier = cosines[..., first, layer]
        later = cosines[..., second, layer]
        rises = (earlier <= later + _TIE).double()
        # neither where one is NaN
        rises = rises.masked_fill((earlier + later).isnan(), torch.nan)
        by_layer.append(rises.nanmean(-1))
    return torch.stack(by_layer, -1)


def _layers(states: Array, least: int = 2) -> Tensor:
    layers = as_finite64(states, "states")
    if layers.shape[-2] < least:
        raise LayerscopeError(
            f"states has shape {tuple(layers.shape)}: give [..., layers, D] with {least} layers or more"
        )
    return layers


STRAIGHTNESS = Metric(
    straightness,
    FromPath(_straightness),
    reading="1: a straight path from layer 0 to this one",
    formula="‖h_ℓ − h₀‖ / Σ ‖h_{k+1} − h_k‖, k = 0 … ℓ − 1",
    meaning="Distance from layer 0's state to this layer's over the length of the path between them, by sample; from "
    "0 to 1, and 1 at layer 1.",
    direction="1: the states move along a straight line, as assumption 1 says of all layers.",
    low=True,
)

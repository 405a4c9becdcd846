"""How states move from layer to layer: how straight, and how far in each block."""

import torch
from torch import Tensor
from torch.linalg import vector_norm

from layerscope.core.errors import LayerscopeError
from layerscope.metrics.arrays import Array, as_finite64, directions
from layerscope.metrics.metric import Metric
from layerscope.metrics.pairs import CENTERING, FromPath

_TIE = 1e-12
"""Cosines this close are equal but for their rounding."""


def cosine_to_next(states: Array) -> Tensor:
    """Return the cosine between every layer and the next of each sample, `[..., L]` for ℓ = 0 … L − 1, float64.

    `states` is `[..., L+1, D]` and not centred here; -1 … 1, NaN for zero vectors.

    Source: Tracing Representation Progression, figure 11.

    >>> cosine_to_next(np.array([[3.0, 0.0], [3.0, 3.0], [0.0, 3.0]]))
    tensor([0.7071, 0.7071], dtype=torch.float64)
    """
    unit = directions(_layers(states), torch.zeros(()))
    value: Tensor = torch.linalg.vecdot(unit[..., :-1, :], unit[..., 1:, :]).clamp(
        -1.0, 1.0
    )
    return value


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
    rising, counted = _triples(states)
    return rising / counted


def _triples(states: Array) -> tuple[Tensor, Tensor]:
    """Return for each layer from 2 on how many pairs of earlier layers rise in cosine to it, and how many there are."""
    layers = _layers(states, 3)
    unit = directions(layers, torch.zeros(()))
    cosines, counts = unit @ unit.mT, []
    for layer in range(2, layers.shape[-2]):
        first, second = torch.triu_indices(layer, layer, 1, device=layers.device)
        earlier, later = cosines[..., first, layer], cosines[..., second, layer]
        # neither where one is NaN
        rises, falls = earlier <= later + _TIE, earlier > later + _TIE
        counts.append(torch.stack([rises.sum(-1), (rises | falls).sum(-1)], -1))
    rising, counted = torch.stack(counts, -2).double().unbind(-1)
    return rising, counted


def _layers(states: Array, least: int = 2) -> Tensor:
    layers = as_finite64(states, "states")
    if layers.shape[-2] < least:
        raise LayerscopeError(
            f"states has shape {tuple(layers.shape)}: give [..., layers, D] with {least} layers or more"
        )
    return layers


MONOTONE_TRIPLES = Metric(
    monotone_triples,
    FromPath(monotone_triples, 2, CENTERING),
    unit="%",
    reading="share of pairs of earlier layers whose cosine to this one rises",
    formula="share of ℓ₁ < ℓ₂ < ℓ with cos(h_ℓ₁, h_ℓ) ≤ cos(h_ℓ₂, h_ℓ)",
    meaning="Share of pairs of earlier layers in which the later one has at least the other's cosine to this layer, "
    "by sample, each layer centred by its own mean over the samples unless it is called uncentred; from 0 to "
    "100 %.",
    direction="100 %: the cosine to this layer rises from layer to layer, as theorem 2.1 proves for states that move "
    "along a straight line. Chance gives 50 %.",
    low=True,
)
STRAIGHTNESS = Metric(
    straightness,
    FromPath(_straightness, 1),
    reading="1: a straight path from layer 0 to this one",
    formula="‖h_ℓ − h₀‖ / Σ ‖h_{k+1} − h_k‖, k = 0 … ℓ − 1",
    meaning="Distance from layer 0's state to this layer's over the length of the path between them, by sample; from "
    "0 to 1, and 1 at layer 1.",
    direction="1: the states move along a straight line, as assumption 1 says of all layers.",
    low=True,
)
COSINE_TO_NEXT = Metric(
    cosine_to_next,
    FromPath(cosine_to_next, choice=CENTERING),
    title="cosine to the next layer",
    reading="1: the next block keeps the direction",
    formula="cos(h_ℓ, h_{ℓ+1})",
    meaning="Cosine between a layer's state and the next layer's, by sample, each layer centred by its own mean over "
    "the samples unless it is called uncentred; from -1 to 1.",
    direction="1: the next block keeps the direction of the state.",
)

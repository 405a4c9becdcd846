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


def norm_ratio(states: Array) -> Tensor:
    """Return ‖h_ℓ‖ / ‖h_{ℓ+1} − h_ℓ‖ of each sample and layer, `[..., L]` for ℓ = 0 … L − 1, float64.

    `states` is `[..., L+1, D]`. In a pre-norm block the difference is the long branch and the ratio that of skip
    connection to branch; in a post-norm block it is not. Infinite where a block changes nothing. Raises
    `LayerscopeError` for fewer than two layers.

    Source: Tracing Representation Progression, figure 11.

    >>> norm_ratio(np.array([[3.0, 0.0], [3.0, 1.0], [3.0, 3.0]]))
    tensor([3.0000, 1.5811], dtype=torch.float64)
    """
    found = _layers(states)
    value: Tensor = vector_norm(found[..., :-1, :], dim=-1) / vector_norm(found.diff(dim=-2), dim=-1)
    return value


def cosine_to_next(states: Array) -> Tensor:
    """Return the cosine between every layer and the next of each sample, `[..., L]` for ℓ = 0 … L − 1, float64.

    `states` is `[..., L+1, D]` and not centred here; -1 … 1, NaN for zero vectors.

    Source: Tracing Representation Progression, figure 11.

    >>> cosine_to_next(np.array([[3.0, 0.0], [3.0, 3.0], [0.0, 3.0]]))
    tensor([0.7071, 0.7071], dtype=torch.float64)
    """
    unit = directions(_layers(states), torch.zeros(()))
    value: Tensor = torch.linalg.vecdot(unit[..., :-1, :], unit[..., 1:, :]).clamp(-1.0, 1.0)
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
    found = _layers(states)
    steps = vector_norm(found.diff(dim=-2), dim=-1)
    value: Tensor = vector_norm(found[..., 1:, :] - found[..., :1, :], dim=-1) / steps.cumsum(-1)
    return value


def line_distance(states: Array) -> Tensor:
    """Return each inner layer's distance from the line between the ends, over the line's length, `[..., L-1]`, float64.

    `states` is `[..., L+1, D]`; the line is that through h_0 and h_L. NaN where the ends are one point.

    Source: Tracing Representation Progression, assumption 1.

    >>> line_distance(np.array([[0.0, 0.0], [1.0, 1.0], [2.0, 0.0]]))
    tensor([0.5000], dtype=torch.float64)
    """
    found = _layers(states)
    start, line = found[..., :1, :], found[..., -1:, :] - found[..., :1, :]
    length = vector_norm(line, dim=-1, keepdim=True)
    away = found[..., 1:-1, :] - start
    along = (away * line / length).sum(-1, keepdim=True)
    value: Tensor = vector_norm(away - along * line / length, dim=-1) / length[..., 0]
    return value


def steady_norm(states: Array, within: float = 0.1) -> Tensor:
    """Return 1 where a layer's norm differs from the layer before's by a share `within` at most, else 0, `[..., L]`.

    `states` is `[..., L+1, D]`; the result is float64. Raises `LayerscopeError` for `within` below 0.

    Source: Tracing Representation Progression, the proof of theorem 2.2, which assumes it.

    >>> steady_norm(np.array([[1.0, 0.0], [0.0, 1.05], [2.0, 0.0]]))
    tensor([1., 0.], dtype=torch.float64)
    """
    if not within >= 0:
        raise LayerscopeError(f"within={within} is below 0: give a share such as 0.1")
    norms = vector_norm(_layers(states), dim=-1)
    steady: Tensor = norms.diff(dim=-1).abs() <= within * norms[..., :-1]
    return steady.double()


def monotone_triples(states: Array) -> Tensor:
    """Return the share of triples ℓ₁ < ℓ₂ < ℓ₃ with cos(h_ℓ₁, h_ℓ₃) ≤ cos(h_ℓ₂, h_ℓ₃) for ℓ₃ = 2 … L, `[..., L-1]`.

    `states` is `[..., L+1, D]`; the values are float64, 0 … 1, about 1/2 by chance. Triples with a zero vector, as
    centred states that do not vary give, are left out; NaN where no triple is left.

    Source: Tracing Representation Progression, theorem 2.1.

    >>> monotone_triples(np.array([[0.0, 1.0], [1.0, 1.0], [1.0, 0.0], [1.0, 0.5]]))  # the last goes back a step
    tensor([1.0000, 0.6667], dtype=torch.float64)
    """
    rising, known = _triples(states)
    return rising / known


def monotone_share(states: Array) -> Tensor:
    """Return the share of all triples of layers in the order of `monotone_triples`, `[...]`, 0 … 1, float64.

    `states` is `[..., L+1, D]`; NaN where no triple is left.

    Source: Tracing Representation Progression, theorem 2.1.

    >>> monotone_share(np.array([[0.0, 1.0], [1.0, 1.0], [1.0, 0.0], [1.0, 0.5]]))  # three of four
    tensor(0.7500, dtype=torch.float64)
    """
    rising, known = _triples(states)
    return rising.sum(-1) / known.sum(-1)


def _triples(states: Array) -> tuple[Tensor, Tensor]:
    """Return for each layer from 2 on how many pairs of earlier layers rise in cosine to it, and how many there are."""
    found = _layers(states, 3)
    unit = directions(found, torch.zeros(()))
    cosines, counts = unit @ unit.mT, []
    for layer in range(2, found.shape[-2]):
        first, second = torch.triu_indices(layer, layer, 1, device=found.device)
        earlier, later = cosines[..., first, layer], cosines[..., second, layer]
        rises, falls = earlier <= later + _TIE, earlier > later + _TIE  # neither where one is NaN
        counts.append(torch.stack([rises.sum(-1), (rises | falls).sum(-1)], -1))
    rising, known = torch.stack(counts, -2).double().unbind(-1)
    return rising, known


def _layers(states: Array, least: int = 2) -> Tensor:
    found = as_finite64(states, "states")
    if found.shape[-2] < least:
        raise LayerscopeError(
            f"states has shape {tuple(found.shape)}: give [..., layers, D] with {least} layers or more"
        )
    return found


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
MONOTONE_SHARE = Metric(
    monotone_share,
    FromPath(lambda states: monotone_share(states)[:, None], choice=CENTERING),
    title="monotone triples of all layers",
    unit="%",
    reading="share of all triples of layers whose cosine rises",
    meaning="Share of all triples of layers ℓ₁ < ℓ₂ < ℓ₃ with cos(h_ℓ₁, h_ℓ₃) ≤ cos(h_ℓ₂, h_ℓ₃), by sample; from 0 to "
    "100 %.",
    direction="100 %: the cosine to every later layer rises with depth.",
    source="Tracing Representation Progression, theorem 2.1",
    curve=False,
    beside=("monotone_triples",),
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
LINE_DISTANCE = Metric(
    line_distance,
    FromPath(line_distance, 1),
    reading="0: on the straight line from the first layer to the last",
    formula="distance of h_ℓ from the line through h₀ and h_L, over ‖h_L − h₀‖",
    meaning="Distance of a layer's state from the straight line between those of layer 0 and the last layer, over the "
    "length of that line, by sample; from 0.",
    direction="0: the states move along a straight line, as assumption 1 says.",
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
NORM_RATIO = Metric(
    norm_ratio,
    FromPath(lambda states: norm_ratio(states).nan_to_num(torch.nan, torch.nan, torch.nan)),
    reading="norm of the state over that of what the next block adds",
    formula="‖h_ℓ‖ / ‖h_{ℓ+1} − h_ℓ‖",
    meaning="Norm of a layer's state over that of its change to the next layer, by sample; from 0. In a pre-norm block "
    "that is the skip connection over the long branch, in a post-norm block it is not.",
    direction="High: the next block changes little.",
)
STEADY_NORM = Metric(
    steady_norm,
    FromPath(steady_norm, 1),
    unit="%",
    reading="share of samples whose norm is within 10 % of the layer before",
    formula="|‖h_ℓ‖ − ‖h_{ℓ−1}‖| ≤ 0.1 ‖h_{ℓ−1}‖",
    meaning="Share of samples whose state's norm differs from that at the layer before by 10 % at most; from 0 to "
    "100 %.",
    direction="100 %: the norm hardly changes here, as the proof of theorem 2.2 assumes.",
)

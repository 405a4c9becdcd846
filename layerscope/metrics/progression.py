"""How states move from layer to layer: along a line, and how far each block carries them."""

from torch import Tensor
from torch.linalg import vector_norm

from layerscope.core.errors import LayerscopeError
from layerscope.metrics.arrays import Array, as_finite64


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


def straightness(states: Array) -> Tensor:
    """Return ‖h_L − h_0‖ / Σ ‖h_{ℓ+1} − h_ℓ‖ of each sample, `[...]`, 0 … 1, float64; 1 is a straight line.

    `states` is `[..., L+1, D]`. NaN where no block changes anything.

    Source: Tracing Representation Progression, assumption 1.

    >>> straightness(np.array([[0.0, 0.0], [3.0, 0.0], [3.0, 4.0]]))  # 5 of 7
    tensor(0.7143, dtype=torch.float64)
    """
    found = _layers(states)
    steps = vector_norm(found.diff(dim=-2), dim=-1)
    value: Tensor = vector_norm(found[..., -1, :] - found[..., 0, :], dim=-1) / steps.sum(-1)
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


def _layers(states: Array) -> Tensor:
    found = as_finite64(states, "states")
    if found.shape[-2] < 2:
        raise LayerscopeError(f"states has shape {tuple(found.shape)}: give [..., layers, D] with two layers or more")
    return found

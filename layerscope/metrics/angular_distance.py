import math

import torch
from torch import Tensor

from layerscope.metrics.arrays import Array
from layerscope.metrics.cosine_similarity import cosine_similarity


def angular_distance(X: Array, Y: Array, center: bool = True) -> Tensor:
    """Return the angle between each sample's two vectors as a share of a half turn, one value `[..., N]` a sample.

    arccos of `cosine_similarity`, of the same `X`, `Y` (`[..., N, D]`) and `center`, over π: 0 for the same direction,
    1/2 for a right angle, 1 for the opposite one, NaN where there is no cosine. Float64. Raises `LayerscopeError` as
    `cosine_similarity` does.

    Source: Gromov et al. 2024, The unreasonable ineffectiveness of the deeper layers, who do not centre.
    """
    return half_turns(cosine_similarity(X, Y, center))


def half_turns(cosines: Tensor) -> Tensor:
    """Return the angles of cosines over π, zero where a cosine is 1 up to its rounding."""
    clipped = cosines.clamp(-1.0, 1.0)
    # A cosine that is short of 1 by rounding alone would be an angle of 1e-8.
    same = clipped > 1.0 - 16 * torch.finfo(clipped.dtype).eps
    return clipped.arccos().masked_fill(same, 0.0) / math.pi

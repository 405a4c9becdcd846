import math

import torch
from torch import Tensor

from layerscope.metrics.arrays import Array
from layerscope.metrics.blocks import States
from layerscope.metrics.cosine_similarity import cosine_similarity, moments
from layerscope.metrics.metric import Metric
from layerscope.metrics.pairs import CENTERING, FromPairs


def angular_distance(X: Array, Y: Array, center: bool = True) -> Tensor:
    """Return the angle between each sample's two vectors as a share of a half turn, one value `[..., N]` a sample.

    arccos of `cosine_similarity`, of the same `X`, `Y` (`[..., N, D]`) and `center`, over π: 0 for
    the same direction, 1/2 for a right angle, 1 for the opposite one, NaN where there is no cosine.

    Source: Gromov et al. 2024, The Unreasonable Ineffectiveness of the Deeper Layers, who do not
    centre.

    >>> angular_distance(np.array([[1.0, 0.0]]), np.array([[0.0, 1.0]]), center=False)
    tensor([0.5000], dtype=torch.float64)
    """
    return _half_turns(cosine_similarity(X, Y, center))


def angle_pairs(
    states: States, center: bool = True, others: States | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the same as `cosine_pairs` of the per-sample `angular_distance`."""
    return moments(states, center, others, _half_turns)


def _half_turns(cosines: Tensor) -> Tensor:
    """Return the angles of cosines over π, zero where a cosine is 1 up to its rounding."""
    clipped = cosines.clamp(-1.0, 1.0)
    # A cosine that is short of 1 by rounding alone would be an angle of 1e-8.
    same = clipped > 1.0 - 16 * torch.finfo(clipped.dtype).eps
    return clipped.arccos().masked_fill(same, 0.0) / math.pi


ANGULAR_DISTANCE = Metric(
    angular_distance,
    FromPairs(angle_pairs, "{}", CENTERING, least=0, all_samples=True, one_width=True),
    reading="share of a half turn; 0: the same directions",
    formula="mean of arccos of the cosine / π",
    meaning="Angle between the vectors that two layers give one sample, each layer centred by its own mean over the "
    "samples unless it is called uncentred, as a share of a half turn, averaged over samples; from 0 to 1, right "
    "angles at 1/2.",
    direction="0: the two layers hold the same directions. Neighbouring layers that stay near 0 change little.",
    low=True,
)

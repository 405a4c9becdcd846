import torch
from torch import Tensor

from layerscope.metrics.arrays import Array, as_result, as_tensor, real_first, slices
from layerscope.metrics.factors import FromTokens, Tokens
from layerscope.metrics.metric import Metric

_CACHED = 1 << 19
"""Numbers taken at a time: a difference of all tokens at once spends its time on fresh memory, not on arithmetic."""


def curvature(tokens: Array, mask: Array | None = None) -> float | Tensor:
    """Return the mean angle between consecutive steps from token to token, one value a sample.

    `tokens` is `[..., T, D]`, `mask` `[..., T]` marks real tokens (None: all); steps go from each
    real token to the next real one. The value `[...]` is in radians, 0 ... pi. Angles at a step of
    length zero (a repeated token) are left out; see `zero_differences`. NaN where no angle is left,
    as with fewer than three real tokens.

    Source: Hosseini and Fedorenko 2023; Skean et al. 2025, Layer by Layer, section 3.

    >>> round(curvature(np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0]])), 4)  # one right angle, π/2
    1.5708
    """
    return as_result(_angles_and_zeros(Tokens.of(tokens, mask))[0])


def zero_differences(tokens: Array, mask: Array | None = None) -> int | Tensor:
    """Return how many steps from a real token to the next have length zero, one count `[...]` a sample.

    >>> zero_differences(np.array([[1.0, 0.0], [1.0, 0.0], [2.0, 0.0]]))
    1
    """
    counts = _angles_and_zeros(Tokens.of(tokens, mask))[1]
    return counts if counts.ndim else int(counts)


def _angles_and_zeros(tokens: Tokens) -> tuple[Tensor, Tensor]:
    """Return `curvature` and `zero_differences`, both `[...]`, from one reading of the tokens.

    Samples are taken a few at a time, so that their steps stay in the cache.
    """
    states, lengths = real_first(as_tensor(tokens.states, "tokens", 2), tokens.mask)
    shape = states.shape[:-2]
    samples = states.reshape(-1, *states.shape[-2:])
    size = max(1, _CACHED // samples[0].numel())
    means = []
    zeros = []
    for part in slices(len(samples), size):
        mean, zero = _angles(samples[part], lengths.reshape(-1)[part])
        means.append(mean)
        zeros.append(zero)
    return torch.cat(means).reshape(shape), torch.cat(zeros).reshape(shape)


def _angles(states: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean angle and number of zero steps `[B]` of states `[B, T, D]`.

    The first `lengths` `[B]` tokens of each sample are real: n of them make n − 1 steps and n − 2
    angles, of which only those between two steps that lead somewhere are counted.
    """
    steps = states[..., 1:, :] - states[..., :-1, :]
    norms = torch.linalg.vector_norm(steps, dim=-1)
    dots = torch.linalg.vecdot(steps[..., 1:, :], steps[..., :-1, :])
    steps_taken = torch.arange(norms.shape[-1], device=norms.device)
    real = steps_taken < (lengths - 1)[..., None]
    moving = real & (norms != 0)
    counted = moving[..., 1:] & moving[..., :-1]
    scale = (norms[..., 1:] * norms[..., :-1]).masked_fill(~counted, 1.0)
    cosines = (dots / scale).clamp(-1.0, 1.0)
    angles = cosines.acos().masked_fill(~counted, 0.0)
    zero_steps = (real & (norms == 0)).sum(-1)
    # 0 / 0 is the NaN of a sample without angles.
    return angles.sum(-1) / counted.sum(-1), zero_steps


CURVATURE = Metric(
    curvature,
    FromTokens(lambda tokens: tokens.once(_angles_and_zeros)[0]),
    unit="radians",
    reading="radians; low: tokens follow a smooth path",
    formula="mean of arccos(vₜ · vₜ₊₁ / (‖vₜ‖ ‖vₜ₊₁‖)), vₜ = zₜ₊₁ − zₜ, without angles at vₜ = 0",
    meaning="Mean angle between the steps from one token to the next and the steps after them; from 0 (a straight "
    "line) to π. A sample needs three tokens.",
    direction="Low: tokens follow a smooth path. Random steps in a wide space give about π/2, and steps to "
    "independent points 2π/3.",
    low=True,
)
ZERO_STEPS = Metric(
    name="zero_steps",
    how=FromTokens(lambda tokens: tokens.once(_angles_and_zeros)[1], rare=True),
    reading="steps from a token to an equal one",
    meaning="Number of a sample's steps between neighbouring tokens that have no length and therefore no angle. "
    "Averaged over samples.",
    direction="Above 0: neighbouring tokens are the same vector, as repeated words are at layer 0.",
    source="counted beside curvature",
    curve=False,
    beside=("curvature",),
)

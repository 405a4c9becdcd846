"""Which draft tokens stay: those that the model agrees with or, where it samples, that its probabilities accept."""

from collections.abc import Sequence

import torch
from torch import Tensor

from layerscope.core import LayerscopeError


def speculative_sample(
    probs: Tensor, tokens: Tensor, draft_probs: Sequence[Tensor]
) -> tuple[Tensor, Tensor]:
    """Accept draft tokens so that what is drawn follows `probs` [B, n, V]; return how many, [B], and one more, [B, 1].

    A token drafted with probability q is accepted with probability min(1, p / q), and the first
    that is rejected is drawn again from what q lacks of p (Leviathan et al. 2023, algorithm 1).
    """
    q = torch.stack([*draft_probs, torch.zeros_like(probs[:, 0])], 1)
    drafted = tokens[:, 1:, None]
    p_drafted = probs[:, :-1].gather(2, drafted)
    q_drafted = q[:, :-1].gather(2, drafted)
    ratio = p_drafted / q_drafted
    uniform = torch.rand_like(ratio)
    accepted = accepted_lengths((uniform < ratio)[..., 0])
    next_position = accepted[:, None, None].expand(-1, 1, probs.shape[2])
    p_next = probs.gather(1, next_position)[:, 0]
    q_next = q.gather(1, next_position)[:, 0]
    residual = (p_next - q_next).clamp(min=0)
    # rounding may leave nothing where p and q are the same
    has_residual = residual.sum(-1, keepdim=True) > 0
    weights = torch.where(has_residual, residual, p_next)
    return accepted, torch.multinomial(weights, 1)


def accepted_lengths(accepts: Tensor) -> Tensor:
    """Return how many draft tokens [B, n] of each text are accepted before the first that is not, [B]."""
    return accepts.long().cumprod(1).sum(1)


def probabilities(scores: Tensor) -> Tensor:
    """Return the probabilities of scores."""
    probs = scores.softmax(-1)
    refuse_nan(probs[..., 0])  # one NaN makes NaN of all
    return probs


def refuse_nan(values: Tensor, source: str = "the model") -> None:
    """Raise for a NaN that `source` gives."""
    if bool(values.isnan().any()):
        raise LayerscopeError(
            f"{source} gives NaN: check its weights, or try another `dtype`"
        )

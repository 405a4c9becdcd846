"""Which draft tokens stay: those that the model agrees with or, where it samples, that its law accepts."""

from collections.abc import Sequence

import torch
from torch import Tensor

from layerscope.core import LayerscopeError


def sampled(
    law: Tensor, tokens: Tensor, laws: Sequence[Tensor]
) -> tuple[Tensor, Tensor]:
    """Accept draft tokens so that what is drawn follows `law` [B, n, V]; return how many, [B], and one more, [B, 1].

    A token of the draft's law q is accepted with probability min(1, p / q), and the first that is
    rejected is drawn again from what q lacks of p (Leviathan et al. 2023, algorithm 1).
    """
    q = torch.stack([*laws, torch.zeros_like(law[:, 0])], 1)
    drafted = tokens[:, 1:, None]
    p_drafted = law[:, :-1].gather(2, drafted)
    q_drafted = q[:, :-1].gather(2, drafted)
    chance = p_drafted / q_drafted
    lots = torch.rand_like(chance)
    good = agreed((lots < chance)[..., 0])
    at = good[:, None, None].expand(-1, 1, law.shape[2])
    last = law.gather(1, at)[:, 0]
    lacking = (last - q.gather(1, at)[:, 0]).clamp(min=0)
    # rounding may leave nothing where both laws are the same
    some = lacking.sum(-1, keepdim=True) > 0
    return good, torch.multinomial(torch.where(some, lacking, last), 1)


def agreed(accepts: Tensor) -> Tensor:
    """Return how many draft tokens [B, n] of each text are accepted before the first that is not, [B]."""
    return accepts.long().cumprod(1).sum(1)


def law_of(scores: Tensor) -> Tensor:
    """Return the probabilities of scores."""
    law = scores.softmax(-1)
    refuse_nan(law[..., 0])  # one NaN makes NaN of all
    return law


def refuse_nan(values: Tensor) -> None:
    """Raise for a NaN."""
    if bool(values.isnan().any()):
        raise LayerscopeError(
            "the model gives NaN: check its weights, or try another `dtype`"
        )

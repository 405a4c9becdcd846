"""The losses that aligned training is measured against: a regulariser of similarity, and a classifier per layer."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from layerscope.core.errors import LayerscopeError
from layerscope.training.loss import IGNORED, aligned_loss, check_classes, counted, shares_of

Similarity = Callable[[Tensor, Tensor], Tensor]
"""Of two sets of rows `[N, D]`, a scalar, 1 where they say the same."""


def mean_cosine(one: Tensor, two: Tensor) -> Tensor:
    """Return the mean cosine of the rows of two layers."""
    return nn.functional.cosine_similarity(one, two, dim=-1).mean()


def linear_cka(one: Tensor, two: Tensor) -> Tensor:
    """Return the biased linear CKA of the rows of two layers within the batch, with gradients.

    Source: Tracing Representation Progression, equation 3.
    """
    a, b = one - one.mean(0), two - two.mean(0)
    wide = len(a) < a.shape[-1]  # the cheaper of the Grams and the features
    inner = [(x @ x.T, y @ y.T) if wide else (x.T @ y, x.T @ y) for x, y in ((a, b), (a, a), (b, b))]
    cross, own_a, own_b = ((x * y).sum() for x, y in inner)
    # clamped under the root, whose slope at 0 is infinite: one row alone is no variance
    return cross / (own_a * own_b).clamp_min(torch.finfo(one.dtype).tiny).sqrt()


def similarity_loss(
    states: Tensor | Sequence[Tensor],
    labels: Tensor,
    head: nn.Linear | Callable[[Tensor], Tensor],
    similarity: Similarity = mean_cosine,
    beta: float = 1.0,
    weights: str | Sequence[float] = "linear",
    layers: Sequence[int] | None = None,
    *,
    shift: bool = False,
    ignore_index: int = IGNORED,
    items: Tensor | float | None = None,
) -> Tensor:
    """Return CE of the last exit + β Σ λ_ℓ (1 − similarity(h_ℓ, h_L)) over the exits before it, a scalar.

    The arguments are those of `aligned_loss`. Source: Tracing Representation Progression, appendix B.3.
    """
    rows, truth = counted(states, labels, shift=shift, ignore_index=ignore_index, items=items)
    shares = shares_of(len(rows), layers, weights)
    loss = aligned_loss(rows[-1:], truth, head, items=items)
    if len(rows) == 1 or not len(truth):
        return loss
    with torch.autocast(rows[0].device.type, enabled=False):  # sums of squares overflow in half precision
        wide = [row if row.dtype == torch.float64 else row.float() for row in rows]
        apart = [share * (1 - similarity(row, wide[-1])) for share, row in zip(shares, wide[:-1], strict=False)]
    share_of_items = 1.0 if items is None else len(truth) / items
    return loss + beta * share_of_items * torch.stack(apart).sum()


def classifiers_loss(
    states: Tensor | Sequence[Tensor],
    labels: Tensor,
    heads: Sequence[Callable[[Tensor], Tensor]],
    weights: str | Sequence[float] = "linear",
    layers: Sequence[int] | None = None,
    distillation: float = 0.0,
    temperature: float = 1.0,
    *,
    shift: bool = False,
    ignore_index: int = IGNORED,
    items: Tensor | float | None = None,
) -> Tensor:
    """Return Σ λ_ℓ CE(head_ℓ(h_ℓ)) with a head for each exit, a scalar.

    With `distillation` δ each exit but the last adds λ_ℓ δ T² KL(p_L ‖ p_ℓ) at temperature T, the last exit's
    probabilities held fixed (Hinton et al. 2015). Further arguments are those of `aligned_loss`.
    """
    rows, truth = counted(states, labels, shift=shift, ignore_index=ignore_index, items=items)
    shares = shares_of(len(rows), layers, weights)
    if len(heads) != len(rows):
        raise LayerscopeError(f"{len(rows)} exits and {len(heads)} heads: give one for each")
    logits = [head(row) for head, row in zip(heads, rows, strict=True)]
    check_classes(truth, logits[-1].shape[-1])
    logits = [one if one.dtype == torch.float64 else one.float() for one in logits]
    teacher = (logits[-1].detach() / temperature).log_softmax(-1)
    total = logits[-1].new_zeros(())
    for number, (share, one) in enumerate(zip(shares, logits, strict=True), start=1):
        total = total + share * nn.functional.cross_entropy(one, truth, reduction="sum")
        if distillation and number < len(rows):
            student = (one / temperature).log_softmax(-1)
            apart = nn.functional.kl_div(student, teacher, reduction="sum", log_target=True)
            total = total + share * distillation * temperature**2 * apart
    return total / (len(truth) if items is None else items)

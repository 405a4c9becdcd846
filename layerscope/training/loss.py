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
        found: Any = chunked_cross_entropy(rows, head.weight, head.bias, truth, shares)
    else:
        found = sum(
            share * nn.functional.cross_entropy(logits_of(row, head, truth), truth, reduction="sum")
            for row, share in zip(rows, shares, strict=True)
        )
    return torch.as_tensor(found) / (len(truth) if items is None else items)


def counted(
    states: Tensor | Sequence[Tensor],
    labels: Tensor,
    *,
    shift: bool = False,
    ignore_index: int = IGNORED,
    items: Tensor | float | None = None,
) -> tuple[list[Tensor], Tensor]:
    """Return the states `[N, D]` of each exit whose labels count, and these labels `[N]`; raises as `aligned_loss`."""
    exits = list(states)
    if not exits:
        raise LayerscopeError("no exit is given: give the states of at least one layer")
    last = tuple(exits[-1].shape)
    for number, state in enumerate(exits):
        if tuple(state.shape) != last:
            raise LayerscopeError(
                f"exit {number} has states of shape {tuple(state.shape)} and the last one {last}: one head reads exits "
                "of one shape"
            )
    if labels.is_floating_point():
        raise LayerscopeError(f"labels are {labels.dtype}: give classes, as whole numbers")
    if tuple(labels.shape) != last[:-1]:
        raise LayerscopeError(f"states {last} and labels {tuple(labels.shape)}: give one label for each state")
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


def logits_of(rows: Tensor, head: Callable[[Tensor], Tensor], truth: Tensor) -> Tensor:
    """Return the logits `[N, K]` of one exit, in float32 at least; raises for labels that are none of its classes."""
    logits = head(rows)
    if logits.ndim != 2 or len(logits) != len(truth):
        raise LayerscopeError(f"the head turns {tuple(rows.shape)} into {tuple(logits.shape)}: it must give a row each")
    check_classes(truth, logits.shape[-1])
    return wide(logits)


def wide(values: Tensor) -> Tensor:
    """Return values in float32 at least."""
    return values if values.dtype == torch.float64 else values.float()


def check_classes(truth: Tensor, classes: int) -> None:
    """Raise `LayerscopeError` where a label is none of the head's classes."""
    for label in map(int, truth.aminmax()) if len(truth) else ():
        if not 0 <= label < classes:
            raise LayerscopeError(f"label {label} is outside the head's {classes} classes, 0 to {classes - 1}")

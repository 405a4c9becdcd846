"""Cross-entropy of many exits through one shared classifier, in memory that grows with neither exits nor classes.

The logits of all exits and tokens never exist at once. A chunk of rows gets its logits, its loss and
at once the gradient of that, softmax − one-hot, which is taken back through the head to the rows;
then the logits are dropped. Backward only scales the gradients that were stored.
"""

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
Head = Callable[[Tensor], Tensor]
"""Makes logits `[N, K]` of states `[N, D]`."""
IGNORED = -100
CHUNK = 3 << 20
"""At most this many logits in a chunk, or a third of the head's own size where that is more."""


def aligned_loss(
    states: ExitStates,
    labels: Tensor,
    head: nn.Linear | Head,
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
    states, labels, weights, items = labelled_states(
        states, labels, layers, weights, shift=shift, items=items
    )
    if isinstance(head, nn.Linear):
        check_classes(labels, head.out_features)
        total: Any = chunked_cross_entropy(
            states, head.weight, head.bias, labels, weights
        )
    else:
        total = 0.0
        for rows, weight in zip(states, weights, strict=True):
            logits = logits_of(rows, head, labels)
            total = total + weight * nn.functional.cross_entropy(
                logits, labels, reduction="sum"
            )
    return torch.as_tensor(total) / items


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
    if isinstance(weights, str):
        name = OneOf(WEIGHTS).take("weights", weights)
        weights = exits
        if name == "uniform":
            weights = [1.0] * len(exits)
    unnormalised = [float(weight) for weight in weights]
    if len(unnormalised) != len(exits):
        raise LayerscopeError(
            f"weights are {len(unnormalised)} numbers for {len(exits)} exits: give one for each exit"
        )
    if not any(unnormalised) or not all(0 <= w < math.inf for w in unnormalised):
        raise LayerscopeError(
            f"weights {unnormalised} for {len(exits)} exits: give each at least 0, and not all 0"
        )
    total = math.fsum(unnormalised)
    return tuple(weight / total for weight in unnormalised)


def labelled_states(
    states: ExitStates,
    labels: Tensor,
    layers: Sequence[int] | None,
    weights: ExitWeights,
    *,
    shift: bool = False,
    items: Tensor | float | None = None,
) -> tuple[list[Tensor], Tensor, tuple[float, ...], Tensor | float]:
    """Return the states `[N, D]` of each exit whose labels count, these labels `[N]`, and the weight of each exit.

    The last is what a sum of losses is divided by: `items`, or the number of these labels.
    """
    exits = list(states)
    _check_exits(exits, labels)
    if shift:
        exits = [state[..., :-1, :] for state in exits]
        labels = labels[..., 1:]
    counts = labels != IGNORED
    labels = labels[counts].long()
    if items is None:
        items = len(labels)
    if not len(labels) and not items:
        raise LayerscopeError(
            "every label of this batch is ignored: leave such batches out"
        )
    if layers is None:
        layers = range(1, len(exits) + 1)
    if len(layers) != len(exits):
        raise LayerscopeError(
            f"{len(exits)} exits and {len(layers)} layers: name the depth of each exit"
        )
    weights = exit_weights(layers, weights=weights)
    return [state[counts] for state in exits], labels, weights, items


def _check_exits(exits: Sequence[Tensor], labels: Tensor) -> None:
    """Raise where exits differ in shape, or where labels are no class for each of their states."""
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


def logits_of(rows: Tensor, head: Head, labels: Tensor) -> Tensor:
    """Return the logits `[N, K]` of one exit, in float32 at least; raises for labels that are none of its classes."""
    logits = head(rows)
    if logits.ndim != 2 or len(logits) != len(labels):
        raise LayerscopeError(
            f"the head turns {tuple(rows.shape)} into {tuple(logits.shape)}: it must give one row for each"
        )
    check_classes(labels, logits.shape[-1])
    return at_least_float32(logits)


def at_least_float32(values: Tensor) -> Tensor:
    """Return values in float32 at least."""
    return values.to(torch.promote_types(values.dtype, torch.float32))


def check_classes(labels: Tensor, classes: int) -> None:
    """Raise `LayerscopeError` where a label is none of the head's classes."""
    wrong = labels[(labels < 0) | (labels >= classes)]
    if len(wrong):
        raise LayerscopeError(
            f"label {wrong[0]} is outside the head's {classes} classes, 0 to {classes - 1}"
        )


def chunked_cross_entropy(
    states: Sequence[Tensor],
    head_weight: Tensor,
    head_bias: Tensor | None,
    labels: Tensor,
    weights: Sequence[float],
) -> Tensor:
    """Return Σ_e weight_e Σ_n CE(states_e[n] Wᵀ + b, labels[n]), chunk by chunk, gradients made in the forward.

    Exponentials and sums run in float32 at least; products in the dtype of the states, or that of
    autocast. Of four exits x 512 tokens x 16,000 classes (D = 128, one core) this took 0.60 s and
    85 MiB, torch 2.13's chunked `linear_cross_entropy`, called for each exit, 2.5 s and 133 MiB.
    """
    device = states[0].device.type
    if torch.is_autocast_enabled(device):
        dtype = torch.get_autocast_dtype(device)
        states = [rows.to(dtype) for rows in states]
        head_weight = head_weight.to(dtype)
        if head_bias is not None:
            head_bias = head_bias.to(dtype)
    apply: Callable[..., Tensor] = _Chunked.apply  # torch has no types for it
    return apply(labels, tuple(weights), head_weight, head_bias, *states)


class _Chunked(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        labels: Tensor,
        weights: tuple[float, ...],
        head_weight: Tensor,
        head_bias: Tensor | None,
        *states: Tensor,
    ) -> Tensor:
        dtype = torch.promote_types(head_weight.dtype, torch.float32)
        device = head_weight.device
        total = torch.zeros((), dtype=dtype, device=device)
        grad_states = [torch.empty_like(rows) for rows in states]
        grad_bias = torch.zeros(len(head_weight), dtype=dtype, device=device)
        grad_weight = None
        needs_grad = ctx.needs_input_grad
        if needs_grad[2]:
            grad_weight = torch.zeros_like(head_weight, dtype=dtype)
        # each chunk passes over the whole gradient of a head, so a large head takes rows in
        # proportion to its width
        size = max(1, CHUNK // len(head_weight), head_weight.shape[1] // 3)
        with torch.autocast(device.type, enabled=False):
            for exit_states, exit_grad, weight in zip(
                states, grad_states, weights, strict=True
            ):
                columns = exit_states, labels[:, None], exit_grad
                chunks = (torch.split(column, size) for column in columns)
                for rows, targets, grad_rows in zip(*chunks, strict=True):
                    # the loss of a chunk
                    logits = nn.functional.linear(rows, head_weight, head_bias)
                    log_p = torch.log_softmax(logits, -1, dtype=dtype)
                    total -= weight * log_p.gather(1, targets).sum()
                    if not any(needs_grad):
                        continue
                    # its gradient, softmax − one-hot, in place of the log-probabilities
                    minus_one = log_p.new_full(targets.shape, -1.0)
                    grad_logits = log_p.exp_().scatter_add_(1, targets, minus_one)
                    # and that of what made the logits
                    grad_bias.add_(grad_logits.sum(0), alpha=weight)
                    grad_logits = grad_logits.to(head_weight.dtype)
                    torch.mul(grad_logits @ head_weight, weight, out=grad_rows)
                    if grad_weight is not None:
                        _add_product(grad_weight, grad_logits.T, rows, weight)
        if grad_weight is not None:
            grad_weight = grad_weight.to(head_weight.dtype)
        ctx.save_for_backward(
            grad_weight, None if head_bias is None else grad_bias, *grad_states
        )
        return total

    @staticmethod
    def backward(ctx: Any, *grad_losses: Tensor) -> Any:
        (grad_loss,) = grad_losses
        scaled = [
            None if gradient is None else gradient * grad_loss.to(gradient.dtype)
            for gradient in ctx.saved_tensors
        ]
        return None, None, *scaled


def _add_product(total: Tensor, left: Tensor, right: Tensor, weight: float) -> None:
    """Add weight · left · right to a total, which may have another dtype."""
    if total.dtype == right.dtype:
        total.addmm_(left, right, alpha=weight)
    else:
        total.add_(left @ right, alpha=weight)

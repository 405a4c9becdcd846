"""Attention weights: which modules give them, and the implementation that does.

Fused attention never holds the weights [B, H, T, T]. The eager one of transformers returns them
beside the states, from a module that is found here by what it returns: four dimensions, the last two
as long as the text, and rows that sum to 1.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from layerscope.models.forward import (
    Args,
    Hooks,
    Inputs,
    Kwargs,
    forward,
    hooked,
    setting,
    state_of,
    tensors_in,
)
from layerscope.models.stack import Stack
from layerscope.models.sublayers.watch import Spot, Tap, spot_hooks

ATTENTION = "attention"
"""The site of attention weights."""


@contextmanager
def eager_attention(module: Any) -> Iterator[bool]:
    """Make a transformers model return attention weights, which only its eager attention does; restore it on exit.

    Yields whether that changes anything.
    """
    implementation = setting(module, "_attn_implementation")
    changes = implementation not in (None, "eager") and hasattr(
        module, "set_attn_implementation"
    )
    if changes:
        module.set_attn_implementation("eager")
    try:
        yield changes
    finally:
        if changes:
            module.set_attn_implementation(implementation)


@torch.inference_mode()
def find_attention(module: nn.Module, stack: Stack, inputs: Inputs) -> tuple[Tap, ...]:
    """Return where blocks give their attention weights, one tap for each layer that has them, by a small forward."""
    taps: dict[int, Tap] = {}
    calls = Counter[str]()
    layer = 0
    length = 0

    def enter_block(_: nn.Module, args: Args, kwargs: Kwargs) -> None:
        nonlocal layer, length
        layer += 1
        length = state_of((args, kwargs)).shape[1]
        calls.clear()

    def record_weights(spot: Spot, value: object) -> None:
        if spot.is_input or layer in taps:
            return
        weights = weights_in(value)
        if weights is not None and is_attention(weights, length):
            taps[layer] = Tap(ATTENTION, layer, spot)

    blocks = stack.block_modules(module)
    hooks: list[Hooks] = [(block, enter_block, None) for block in blocks]
    inside = chain.from_iterable(block.named_modules() for block in blocks)
    hooks += spot_hooks(inside, calls, record_weights)
    with hooked(hooks):
        forward(module.get_submodule(stack.entry), inputs)
    return tuple(taps.values())


def is_attention(weights: Tensor, length: int) -> bool:
    """Return whether weights `[B, H, T, T]` are attention within texts of `length` tokens."""
    if weights.shape[-1] != length:
        return False
    # rows of attention sum to 1
    sums = weights.float().sum(-1)
    return torch.allclose(sums, torch.ones_like(sums), atol=1e-2)


def weights_in(output: object) -> Tensor | None:
    """Return the attention weights [B, H, T, T] among a module's results, None where there are none."""
    for tensor in tensors_in(output):
        is_square = tensor.ndim == 4 and tensor.shape[-1] == tensor.shape[-2]
        if is_square and tensor.is_floating_point():
            return tensor
    return None

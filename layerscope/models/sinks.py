"""Take the massive token out of a forward: without the MLP write that makes it.

A block makes a token massive where it reads it at an ordinary length and gives it back massive. Such
a block runs again, and what its MLP adds to that token is zero:

    block 2 reads    ‖h‖ =   1   1   1
    it gives         ‖h‖ = 900   1   1     token 1 is massive, and was not before
    it runs again    ‖h‖ =   1   1   1     nothing is added by the MLP at token 1

Later blocks read what the second run gives. A token that attention makes massive stays so.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from layerscope.models.forward import (
    Args,
    Hooks,
    Kwargs,
    hooked,
    state_of,
    with_state,
)
from layerscope.models.stack import Stack
from layerscope.models.sublayers.watch import Tap, swapped

Sinks = Callable[[Tensor], Tensor]
"""Which tokens [B, T] of states [B, T, D] are massive."""


@contextmanager
def without_sink_writes(
    module: nn.Module, stack: Stack, taps: Iterable[Tap], sinks: Sinks
) -> Iterator[None]:
    """Within, a block that makes a token massive runs again without what its MLP adds to that token.

    `taps` show the MLPs; a block without one of them keeps its writes.
    """
    mlp_taps = [tap for tap in taps if tap.site == "mlp"]
    paths = {tap.layer: tap.spot.path for tap in mlp_taps}
    layer = 0
    read = torch.empty(0)
    removed: Tensor | None = None

    def enter(_: nn.Module, args: Args, kwargs: Kwargs) -> None:
        nonlocal layer, read
        layer += 1
        # a block may change its input in place
        read = state_of((args, kwargs)).clone()

    def leave(block: nn.Module, args: Args, kwargs: Kwargs, output: Any) -> Any:
        nonlocal removed
        made = sinks(state_of(output)) & ~sinks(read)
        if layer not in paths or not bool(made.any()):
            return output
        removed = made
        args, kwargs = swapped(args, kwargs, read)
        output = block.forward(*args, **kwargs)
        removed = None
        return output

    def without_write(
        path: str, _: nn.Module, __: object, ___: object, output: Any
    ) -> Any:
        if removed is None or path != paths.get(layer):
            return output
        write = state_of(output)
        # some give [B·T, D]
        rows = removed.reshape(write.shape[:-1])
        return with_state(output, write.masked_fill(rows[..., None], 0.0))

    # once each, as several blocks may share one
    inside = set()
    for number, path in paths.items():
        block = module.get_submodule(stack.blocks[number - 1])
        inside.add((block.get_submodule(path), path))
    blocks = stack.block_modules(module)
    hooks: list[Hooks] = [(block, enter, leave) for block in blocks]
    hooks += [(child, None, partial(without_write, path)) for child, path in inside]
    with hooked(hooks):
        yield

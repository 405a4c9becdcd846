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
from layerscope.models.sublayers.watch import Tap, as_state, swapped

Sinks = Callable[[Tensor], Tensor]
"""Which tokens [B, T] of states [B, T, D] are massive."""


@contextmanager
def without_sink_writes(
    module: nn.Module, stack: Stack, taps: Iterable[Tap], sinks: Sinks
) -> Iterator[None]:
    """Within, a block that makes a token massive runs again without what its MLP adds to that token.

    `taps` show the MLPs; a block without one of them keeps its writes.
    """
    ablation = _Ablation(stack, taps, sinks)
    with hooked(ablation.hooks(module)):
        yield


class _Ablation:
    """Follows one forward; `layer` is that of the block which runs, `removed` what its MLP must not add to."""

    def __init__(self, stack: Stack, taps: Iterable[Tap], sinks: Sinks) -> None:
        self.stack = stack
        self.sinks = sinks
        mlp_taps = [tap for tap in taps if tap.site == "mlp"]
        self.paths = {tap.layer: tap.spot.path for tap in mlp_taps}
        self.layer = 0
        self.removed: Tensor | None = None
        self.read = torch.empty(0)

    def hooks(self, module: nn.Module) -> Iterator[Hooks]:
        """Yield hooks on the blocks and on their MLPs, once each."""
        inside = set()
        for layer, path in self.paths.items():
            block = module.get_submodule(self.stack.blocks[layer - 1])
            inside.add((block.get_submodule(path), path))
        for child, path in inside:
            yield child, None, partial(self._without_write, path)
        for block in self.stack.block_modules(module):
            yield block, self._enter, self._leave

    def _enter(self, _: nn.Module, args: Args, kwargs: Kwargs) -> None:
        self.layer += 1
        self.read = state_of(
            (args, kwargs)
        ).clone()  # a block may change its input in place

    def _leave(
        self,
        block: nn.Module,
        args: Args,
        kwargs: Kwargs,
        output: Any,
    ) -> Any:
        made = self.sinks(state_of(output)) & ~self.sinks(self.read)
        if self.layer not in self.paths or not bool(made.any()):
            return output
        self.removed = made
        args, kwargs = swapped(args, kwargs, self.read)
        output = block.forward(*args, **kwargs)
        self.removed = None
        return output

    def _without_write(
        self, path: str, _: nn.Module, __: object, ___: object, output: Any
    ) -> Any:
        if self.removed is None or path != self.paths.get(self.layer):
            return output
        hidden = state_of(output)
        state = as_state(hidden, self.read.shape)
        assert state is not None
        kept = state.masked_fill(self.removed[..., None], 0.0)
        return with_state(output, kept.reshape(hidden.shape))

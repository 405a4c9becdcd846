"""Run one forward and hand over the state of every layer as it appears.

Hooks on the blocks do it, so that nothing is stored and the model's code is as it was: layer 0 is
what the first block reads, layer k what the k-th block gives. After the last layer that is wanted,
an exception ends the forward: later blocks and the head never run.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from layerscope.models.attention import ATTENTION, weights_in
from layerscope.models.forward import (
    Args,
    Hooks,
    Inputs,
    Kwargs,
    forward,
    hooked,
    state_of,
)
from layerscope.models.stack import Stack, tokens_read
from layerscope.models.sublayers.watch import Spot, Tap, as_state, spot_hooks

Visit = Callable[[int, str, Tensor], None]
"""Called as visit(layer, site, tokens[B, T, D]), layers 0..L in order, site "raw" then, with a norm, "normed".

Sub-layers come before their block's layer, and so do attention weights [B, H, T, T] at the site "attention". A
visit may itself run the model, bypassed: that is not visited."""


class Enough(Exception):
    """Ends a forward after the layer that was asked for: the head never runs."""


def capture(
    module: nn.Module,
    stack: Stack,
    inputs: Inputs,
    visit: Visit,
    until: int | None = None,
    taps: Sequence[Tap] = (),
) -> None:
    """Run `module` once and visit every layer's state, raw and (where the model has a final norm) normed.

    `taps` are sub-layers and attention weights to be visited as well. Nothing after layer `until`
    (default: the last) is computed; one beyond the last lets the whole forward run.
    """
    last = stack.depth
    if until is not None:
        last = until
    norm = None
    if stack.norm:
        norm = module.get_submodule(stack.norm)
    # a module may return a sub-layer and its attention weights together
    sites = defaultdict[tuple[int, Spot], list[str]](list)
    for tap in taps:
        sites[tap.layer, tap.spot].append(tap.site)
    length = tokens_read(module, stack, inputs)
    visitor = _Visitor(stack, visit, last, length, norm, sites)
    with hooked(visitor.hooks(module)), suppress(Enough):
        forward(module.get_submodule(stack.entry), inputs)
        if last > stack.depth:
            return
        raise RuntimeError(
            f"the model ran {visitor.layer} blocks where its probe ran {stack.depth}"
        )


@dataclass(eq=False)
class _Visitor:
    """Follows one forward; `layer` is the last one given, `entered` that of the block which runs."""

    stack: Stack
    visit: Visit
    last: int
    length: int | None
    norm: nn.Module | None
    sites: Mapping[tuple[int, Spot], Sequence[str]]
    shape: torch.Size = torch.Size()
    layer: int = 0
    entered: int = 0
    visiting: bool = False
    calls: Counter[str] = field(default_factory=Counter)

    def hooks(self, module: nn.Module) -> Iterator[Hooks]:
        """Yield hooks on the blocks, and on the modules that show a sub-layer."""
        blocks = self.stack.block_modules(module)
        for block in blocks:
            enter = None
            if self.sites or block is blocks[0]:
                enter = self._enter
            yield block, enter, self._leave
        inside = []
        for layer, spot in self.sites:
            block = module.get_submodule(self.stack.blocks[layer - 1])
            inside.append((spot.path, block.get_submodule(spot.path)))
        yield from spot_hooks(inside, self.calls, self._show_inside)

    def _enter(self, _: nn.Module, args: Args, kwargs: Kwargs) -> None:
        """See what a block is given: the first one reads layer 0."""
        if self.visiting:
            return
        state = state_of((args, kwargs))
        if self.layer == 0:
            self._show(0, state)
        self.entered = self.layer + 1
        self.shape = state.shape
        self.calls.clear()  # a shared block runs several times

    def _leave(self, _: nn.Module, __: object, ___: object, output: object) -> None:
        """See what a block gives, the next layer."""
        if self.visiting:
            return
        self.layer += 1
        self._show(self.layer, state_of(output))

    def _show(self, layer: int, state: Tensor) -> None:
        """Visit a layer, and end the forward after the last one that is wanted."""
        self.visiting = True
        hidden = self._unfilled(state)
        self.visit(layer, "raw", hidden)
        if self.norm is not None:
            self.visit(layer, "normed", self.norm(hidden))
        self.visiting = False
        if layer == self.last:
            raise Enough

    def _show_inside(self, spot: Spot, value: object) -> None:
        """Visit the sub-layer and the attention weights that are seen at this spot, if any."""
        for site in self.sites.get((self.entered, spot), ()):
            if site == ATTENTION:
                weights = weights_in(value)
                assert weights is not None
                seen = slice(None, self.length)
                self.visit(self.entered, site, weights[..., seen, seen])
                continue
            state = as_state(value, self.shape)
            if state is None:
                raise RuntimeError(
                    f"{spot.path} gave no state where its probe gave one"
                )
            self.visit(self.entered, site, self._unfilled(state))

    def _unfilled(self, state: Tensor) -> Tensor:
        """Return a text's own tokens: a model may fill it up to whole windows."""
        if state.ndim == 3:
            return state[:, : self.length]
        return state


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Put every module into evaluation mode (no dropout, no random masking) and afterwards back as it was."""
    training = [child for child in module.modules() if child.training]
    module.eval()
    try:
        yield
    finally:
        for child in training:
            child.training = True

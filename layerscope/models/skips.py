"""Skip each block in turn at the cost of the blocks after it: those before it have not changed.

One forward records what every block was called with, and the stream between them. Without block 3
of 5 the stream before block 3 goes on into blocks 4 and 5, which run again with their own arguments:

    recorded   h₀ → 1 → h₁ → 2 → h₂ → 3 → h₃ → 4 → h₄ → 5 → h₅
    without 3                    h₂ ──────→ h₂ → 4 → h₄′ → 5 → h₅′

All L of them take L (L − 1) / 2 blocks, less than L / 2 forwards.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from layerscope.core.errors import LayerscopeError
from layerscope.models.capture import Visit, capture
from layerscope.models.forward import Inputs, state_of
from layerscope.models.layered import LayeredModel
from layerscope.models.sublayers.watch import BlockRun, Tap, block_runs


@dataclass(frozen=True)
class Recorded:
    """The block executions of one forward, and the stream [B, T, D] of layers 0..L."""

    runs: list[BlockRun]
    stream: tuple[Tensor, ...]

    @property
    def contributions(self) -> tuple[Tensor, ...]:
        """What each block adds to the stream."""
        return tuple(after - before for before, after in pairwise(self.stream))

    def check_length(self, length: int) -> None:
        """Raise where the model fills texts of this many tokens up to whole windows: their blocks cannot be skipped."""
        filled = self.stream[0].shape[1]
        if filled != length:
            raise LayerscopeError(
                f"the model fills texts of {length} tokens up to {filled} inside its blocks: causal_depth cannot "
                "skip them"
            )

    def without(self, block: int, where: Tensor) -> Iterator[Tensor]:
        """Yield the stream of layers `block`..L where that block, counted from 1, is skipped at the tokens `where`."""
        before = self.stream[block - 1]
        after = self.stream[block]
        state = torch.where(where[..., None], before, after)
        yield state
        for run in self.runs[block:]:
            state = state_of(run.again(state))
            yield state


@torch.inference_mode()
def record(
    model: LayeredModel, inputs: Inputs, taps: tuple[Tap, ...], see: Visit
) -> Recorded:
    """Run a batch and return its block executions; `see` is shown the sub-layers that are tapped."""
    last: list[Tensor] = []

    def visit(layer: int, site: str, state: Tensor) -> None:
        if site == "raw":
            last[:] = [state]
        if site not in model.sites:
            see(layer, site, state)

    module = model.module
    stack = model.stack
    with block_runs(module, stack) as runs:
        capture(module, stack, inputs, visit, None, taps)
    states = [run.states[0].value for run in runs]
    return Recorded(runs, (*states, *last))

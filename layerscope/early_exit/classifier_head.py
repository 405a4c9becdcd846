"""The head of a classifier on states of any layer, for the rows of a batch that are left."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from torch import Tensor, nn

from layerscope.early_exit.batch_axes import Layout, Left
from layerscope.models import Inputs, Lens, replaced


@dataclass(frozen=True)
class ClassifierHead:
    """What follows the last block, on the states of any layer and the rows that are left.

    Where that is one module after another on one tensor, or on its first token alone, these `steps`
    are called: the path of each, and whether it reads the first token. Else it is the model's own
    code, the blocks bypassed, and the modules before the first block do not run for it (a
    convolution over sound costs as much as blocks). Layers with a head of their own, in `heads`
    under their number, are read by that instead of the one at `path`.
    """

    lens: Lens
    layout: Layout
    steps: tuple[tuple[str, bool], ...] = ()
    heads: nn.ModuleDict = field(default_factory=nn.ModuleDict)
    path: str = ""

    def __call__(
        self,
        states: Tensor,
        inputs: Inputs,
        left: Left,
        front: Mapping[str, Any],
        layer: int,
    ) -> Tensor:
        """Return the float32 logits [b, K] of states [b, T, D] of a layer, the rows `left` of the batch `inputs`."""
        module = self.lens.module
        instead = {}
        if str(layer) in self.heads:
            instead[module.get_submodule(self.path)] = self.heads[str(layer)].forward
        for name, shapes in front.items():
            stand_in = partial(self.layout.stand_in, name, shapes, left)
            instead[module.get_submodule(name)] = stand_in
        with replaced(instead):
            if not self.steps:
                return self.lens.sample_logits(states, self.layout.inputs(inputs, left))
            for path, first in self.steps:
                states = module.get_submodule(path)(states[:, 0] if first else states)
            return states.float()

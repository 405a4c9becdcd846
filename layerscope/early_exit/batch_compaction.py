"""Run one batch block by block, and let rows leave it: the model's own forward, on fewer and fewer rows.

Hooks stand around the blocks of the model while it runs. After a block that is an exit, the head
reads the rows that are left; those that are sure leave, and the block's output goes on without
them. From then on every block's arguments (masks, positions, rotations) are cut to the rows that
are left, and to the width of the longest of them, by what `batch_axes` found of their dimensions:

    rows 0 1 2 3   block 1 → exit: 1 and 2 leave with its logits
    rows 0 3       block 2, block 3 → head; the logits are put in the order 0 1 2 3 at the end
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from layerscope.early_exit.batch_axes import Left, Path, changed, width_of
from layerscope.early_exit.classifier_head import ClassifierHead
from layerscope.early_exit.predictions import last_real
from layerscope.models import Inputs, LayeredModel, logits_of
from layerscope.models.forward import Args, Hooks, Kwargs, hooked, state_of

Decide = Callable[[int, Tensor, Tensor], Tensor]
"""Called as decide(layer, logits [b, K], rows [b]) after each exit; returns which of these rows leave, bool [b]."""
Watch = Callable[[str, int, int], object]
"""Called as watch(event, rows, positions) after each stage: "front", "block", "check", "leave", "head"."""


@dataclass(frozen=True)
class Outcome:
    """Of each row of a batch: its logits [B, K], float32, and the layer it left at, int64 [B]."""

    logits: Tensor
    layers: Tensor


class _Done(Exception):
    """Ends a forward: every row has its logits."""


@dataclass(eq=False)
class ExitForward:
    """One forward of a batch: which layer it is at, who is left, and what those who left took along."""

    model: LayeredModel
    head: ClassifierHead
    inputs: Inputs
    exits: Sequence[int]
    decide: Decide
    watch: Watch | None = None
    left: Left = field(init=False)
    layer: int = 0
    """How many blocks have run."""
    started: bool = False
    """Whether the first block has been reached, and `left` is known."""
    reading: bool = False
    """Whether the head is reading a layer: it may call the blocks again, and the hooks stand aside."""
    lengths: Tensor | None = None
    """The positions of each row up to its last real one, where the others can be cut from the end."""
    front: dict[str, Any] = field(default_factory=dict)
    """What the modules before the first block gave, by their names."""
    cuts: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)
    """Arguments by their ids, with what is left of each."""
    departed: list[tuple[Tensor, Tensor, Tensor]] = field(default_factory=list)
    """Layers, rows and logits of those who left."""

    def run(self, call: Callable[[], Any]) -> Outcome:
        """Call the model, in evaluation mode, on the inputs; return what each row says where it leaves.

        Rows left after the last block are read by the model's own code where none has left, else by
        the head. With no exits and nobody who watches the model runs as it is, without hooks.
        """
        try:
            with hooked(self._hooks()):
                output = call()
        except _Done:
            return self._outcome()
        self._stage("head")
        logits = logits_of(output)
        assert logits is not None
        layers = torch.full((len(logits),), self.model.depth)
        return Outcome(logits.float(), layers)

    def _hooks(self) -> Iterator[Hooks]:
        """Yield hooks on the blocks, and on what runs before them where the head needs it again."""
        if not self.exits and self.watch is None:
            return
        module = self.model.module
        for block in self.model.stack.block_modules(module):
            yield block, self._before_block, self._after_block
        if not self.head.steps:
            for name in self.head.layout.front:
                yield module.get_submodule(name), None, partial(self._keep_front, name)

    def _keep_front(
        self, name: str, _: nn.Module, __: Args, ___: Kwargs, output: Any
    ) -> None:
        """Keep what a module gives before the first block."""
        if not self.started:
            self.front[name] = output

    def _before_block(self, _: nn.Module, args: Args, kwargs: Kwargs) -> Any:
        """Give a block what is left of its arguments."""
        if self.reading or (self.started and len(self.left) == self.left.total):
            return None
        if self.started:
            return changed((args, kwargs), self._cut, ("block", self.layer))
        state = state_of((args, kwargs))
        width = width_of(state)
        rows = torch.arange(len(state), device=state.device)
        self.left = Left(len(state), width, rows, width)
        self.started = True
        # a decoder's head finds padding by the ids; given embeddings it reads the last position,
        # which then must stay
        if self.head.layout.trims and "inputs_embeds" not in self.inputs.named:
            mask = self.model.mask(self.inputs, state)
            if mask is not None and mask.shape[1] == width:
                self.lengths = last_real(mask)
        self._stage("front")
        return None

    def _after_block(self, _: nn.Module, __: Args, ___: Kwargs, output: Any) -> Any:
        """Read the layer where it is an exit, and let rows leave."""
        if self.reading:
            return None
        self.layer += 1
        self._stage("block")
        if self.layer == self.model.depth:
            # the model's own code expects the whole batch
            if len(self.left) < self.left.total:
                leaves = torch.ones_like(self.left.rows, dtype=torch.bool)
                self._leave(self._read(output), leaves)
                self._stage("head")
                raise _Done
            return None
        if self.layer not in self.exits:
            return None
        logits = self._read(output)
        leaves = self.decide(self.layer, logits, self.left.rows)
        self._stage("check")
        if not bool(leaves.any()):
            return None
        self._leave(logits, leaves.to(logits.device))
        if not len(self.left):
            raise _Done
        return self._compact(output, ~leaves)

    def _outcome(self) -> Outcome:
        """Return what all rows took along, in the order of the batch."""
        layers, rows, logits = map(torch.cat, zip(*self.departed, strict=True))
        order = rows.argsort()
        return Outcome(logits[order], layers[order].cpu())

    def _stage(self, name: str) -> None:
        """Report the end of a stage to `watch`."""
        if self.watch is not None:
            self.watch(name, len(self.left), self.left.width)

    def _read(self, output: Any) -> Tensor:
        """Return the logits of the rows that are left, at this layer."""
        state = state_of(output)
        # the head runs the model again, with blocks that hand on their input
        self.reading = True
        logits = self.head(state, self.inputs, self.left, self.front, self.layer)
        self.reading = False
        return logits

    def _leave(self, logits: Tensor, leaves: Tensor) -> None:
        """Let rows leave with their logits."""
        rows = self.left.rows[leaves]
        layers = torch.full_like(rows, self.layer)
        self.departed.append((layers, rows, logits[leaves]))
        self.left.rows = self.left.rows[~leaves]

    def _compact(self, output: Any, stays: Tensor) -> Any:
        """Return a block's output without the rows that left, and without the positions that only they had."""
        left = self.left
        rows = stays.nonzero()[:, 0].to(left.rows.device)
        # the output holds the rows that entered the block, not those of the whole batch
        staying = Left(len(stays), left.width, rows, left.width)
        if self.lengths is not None:
            staying.width = min(left.width, int(self.lengths[left.rows].max()))

        def cut(path: Path, tensor: Tensor) -> Tensor:
            return self.head.layout.cut(path, tensor, staying)

        output = changed(output, cut, ("output", self.layer - 1))
        left.width = staying.width
        self.cuts.clear()
        self._stage("leave")
        return output

    def _cut(self, path: Path, tensor: Tensor) -> Tensor:
        """Cut an argument once for all the blocks that are handed the same one."""
        if id(tensor) in self.cuts:
            return self.cuts[id(tensor)][1]
        layout = self.head.layout
        left = self.left
        names = [name for name, value in self.inputs.named.items() if value is tensor]
        cut = (
            layout.cut_input(names[0], tensor, left)
            if names
            else layout.cut(path, tensor, left)
        )
        if cut is not tensor:
            # kept alive, so that no other tensor gets its id
            self.cuts[id(tensor)] = (tensor, cut)
        return cut

"""Which of a probe's calls are the blocks of a model.

Blocks are known by what they do, whatever they are called: one gives what the next one reads.
Every call of a module in one small forward is recorded with its input and its output, so that the
calls of a stack of blocks form a row. Of a model with an embedding and two blocks of two parts:

    call                   reads   gives
    embed                  ids     e
    layers.0.attention     e       x
    layers.0.mlp           x       a
    layers.0               e       a
    layers.1.attention     a       y
    layers.1.mlp           y       b
    layers.1               a       b
    head                   b       logits

Two rows lead from e to b: layers.0, layers.1 and the four parts inside them. Which of them are the
blocks is looked up in this order, the surest first:

1. what the user names with `blocks`;
2. what the model declares: the modules whose outputs it records as hidden states;
3. its gradient-checkpointing layers;
4. structure: modules that stand in a list, or are alike and in a row, the most parameters first.
   Here that is the list `layers`.

A stack must be whole: no module in a list around a block, and none of its kind, is left out. So the
first half of a list, or one of two towers of the same class, is refused, and the reason is kept.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from layerscope.models.forward import setting
from layerscope.models.trace import Call, Calls, is_norm, same
from layerscope.models.weights import parameters

LISTS = (nn.ModuleList, nn.ModuleDict, nn.Sequential)
MOVE_INTO_BLOCKS = "so move whatever the model does between its blocks into them"
NAME_BLOCKS = "name the module that holds the blocks to be measured with `blocks`"
NORM_TOLERANCE = 0.01
"""Share of its norm that a state may change by between two blocks: rounding, where one is in half precision."""


@dataclass
class BlockFinder:
    """Looks for blocks among the `calls` of one forward that can be layers.

    `entry` is the module that is called, at `prefix` (with a dot at its end) in the model. `refused`
    is filled with why calls that look like blocks are none.
    """

    entry: nn.Module
    prefix: str
    calls: Calls
    refused: list[str]

    def find(self, blocks: str | None) -> tuple[str, list[Calls]]:
        """Return how blocks were found, the surest way, and each stack of them; `blocks` is what the user names."""
        if blocks is not None:
            return "given", self._accept([self._named(blocks)], named=True)
        sure = {
            "the model's own declaration": self._declared(),
            "checkpointing layers": self._checkpointing(),
        }
        for rule, selected in sure.items():
            stacks = self._accept(_outermost(_rows(selected)))
            if stacks:
                return rule, stacks
        depth = setting(self.entry, "num_hidden_layers")
        for row in self._rows_by_looks():
            if depth in (None, len(row)) and self._accept([row]):
                return "structure", [row]
        return "", []

    def beside(self, stacks: list[Calls], calls: Calls) -> list[Calls]:
        """Return the lists of compound modules, among all `calls`, that run outside of the stacks."""
        blocks = [call for stack in stacks for call in stack]
        seen = set(blocks)
        rows = list[Calls]()
        for container in self._lists():
            row = _trimmed(members(container, calls))
            compound = len(row) > 1 and all(call.is_compound for call in row)
            if compound and not seen.intersection(row) and not row[0].is_inside(blocks):
                rows.append(row)
                seen.update(row)
        holders = {call for call in calls if call.holds(blocks)}
        return [row for row in _outermost(rows) if holders.isdisjoint(row)]

    def _accept(self, stacks: list[Calls], *, named: bool = False) -> list[Calls]:
        """Return stacks of blocks, none where one is broken or not whole: then `refused` says why."""
        for stack in stacks:
            why = _why_broken(stack, self.calls)
            why = why or self._why_incomplete(stack, stacks, named)
            if why:
                self.refused.append(why)
                return []
        return [stack for stack in stacks if stack]

    def _named(self, blocks: str) -> Calls:
        """Return the calls of what the user names: one module that runs several times, or else the modules in it."""
        runs = [c for c in self.calls if c.path == blocks and c.keeps_shape]
        repeated = _trimmed(runs)
        if not blocks.startswith(self.prefix) or len(repeated) > 1:
            return repeated
        container = self.entry.get_submodule(blocks.removeprefix(self.prefix))
        inside = _trimmed(members(container, self.calls))
        if len(inside) < 2:
            return repeated or inside
        return inside

    def _declared(self) -> Calls:
        """Return the calls of the modules whose outputs the model itself declares to be its hidden states."""
        paths: set[str] = set()
        for name, owner in self.entry.named_modules():
            outputs: Any = getattr(owner, "_can_record_outputs", None) or {}
            classes = set()
            # one, or several in a list or tuple
            for spec in tree_leaves(outputs.get("hidden_states", ())):
                classes.add(getattr(spec, "target_class", spec))
            for path, child in owner.named_modules():
                if classes.intersection(type(child).__mro__):
                    paths.add(self.prefix + f"{name}.{path}".strip("."))
        return [call for call in self.calls if call.path in paths]

    def _checkpointing(self) -> Calls:
        """Return the calls whose gradients transformers can checkpoint, as it can of blocks."""
        from transformers.modeling_layers import GradientCheckpointingLayer as Layer

        return [call for call in self.calls if isinstance(call.module, Layer)]

    def _rows_by_looks(self) -> Iterator[Calls]:
        """Yield what may be a stack by its looks: lists and like modules, then what a Sequential runs, then any row."""
        lists: list[Calls] = []
        sequentials: list[Calls] = []
        for container in self._lists():
            rows = lists
            if isinstance(container, nn.Sequential):
                rows = sequentials
            rows.append(members(container, self.calls))
        by_type = _rows(self.calls, lambda call: type(call.module))
        like = _ranked(lists + by_type)
        if getattr(self.entry, "config", None) is not None:
            yield from (row for row in like if row[0].is_compound)
            return
        yield from like
        yield from _ranked(sequentials)
        by_parent = _rows(self.calls, lambda call: call.path.rpartition(".")[0])
        yield from _ranked(by_parent)

    def _why_incomplete(self, stack: Calls, stacks: list[Calls], named: bool) -> str:
        """Return which module in a list around a block, or of its kind, is in none of the stacks."""
        blocks = sum(stacks, Calls())
        siblings = self._in_its_lists(stack, blocks, named)
        if not named:
            kinds = {type(call.module) for call in stack if call.is_compound}
            alike = [call for call in self.calls if type(call.module) in kinds]
            others = [call for call in alike if call not in blocks]
            siblings = [c for c in others if not c.holds(stack)] + siblings
        for call in siblings:
            if call.has_weights and not call.is_inside(blocks) and not is_norm(call):
                ends = dict.fromkeys((stack[0].path, stack[-1].path))
                row = " … ".join(ends)
                return f"{call.path} is run as well as {row}, and not in a row with it: {NAME_BLOCKS}"
        return ""

    def _in_its_lists(self, stack: Calls, blocks: Calls, named: bool) -> Calls:
        """Return the calls beside a stack in its list; of blocks that were not named, in lists around it too."""
        modules = {call.module for call in stack}
        siblings = list[Call]()
        for container in self._lists():
            inside = members(container, self.calls)
            candidates = [call for call in inside if not call.holds(blocks)]
            if modules.intersection(container.children()):
                siblings += [call for call in candidates if call not in stack]
            elif named or isinstance(container, nn.Sequential):
                continue
            elif modules.intersection(container.modules()):
                siblings += [call for call in candidates if call not in blocks]
        return siblings

    def _lists(self) -> list[nn.Module]:
        """Return the lists of modules that the model has."""
        return [module for module in self.entry.modules() if isinstance(module, LISTS)]


def members(container: nn.Module, calls: Calls) -> Calls:
    """Return the calls of the modules in a container, of lists in it those of theirs, that keep a state's shape."""
    called = {call.module for call in calls}
    inside: set[nn.Module] = set()
    waiting = [container]
    while waiting:
        for child in waiting.pop().children():
            if child in called:
                inside.add(child)
            else:
                waiting.append(child)
    return [call for call in calls if call.module in inside and call.can_be_block]


@torch.no_grad()
def _why_broken(blocks: Calls, calls: Calls) -> str:
    """Return why calls are no stack of blocks, in half a line: one reads other than the one before it gives."""
    paths = {call.path for call in blocks}
    runs = sum(call.path in paths for call in calls)
    if runs != len(blocks):
        row = f"{blocks[0].path} … {blocks[-1].path}"
        return f"{row} run {runs} times, as in a loop, {len(blocks)} of them in a row, {MOVE_INTO_BLOCKS}"
    for block, following in pairwise(blocks):
        norm = max(following.sizes[0], 1e-12)
        norm_change = abs(block.sizes[1] - norm) / norm
        # not <=: of a state that is NaN that would be false, and it may pass
        if same(block.output, following.input) and not norm_change > NORM_TOLERANCE:
            continue
        mismatch = (
            f"are of {list(block.output.shape)} and {list(following.input.shape)}"
        )
        if block.output.shape == following.input.shape:
            difference = (following.input.float() - block.output.float()).norm()
            mismatch = f"differ by {max(norm_change, float(difference) / norm):.0%}"
        return f"{following.path} does not read what {block.path} gives (they {mismatch}), {MOVE_INTO_BLOCKS}"
    return ""


def _rows(
    selected: Calls, kind: Callable[[Call], Any] = lambda call: None
) -> list[Calls]:
    """Join calls of one kind into rows in which each reads what the one before it gives."""
    rows: list[Calls] = []
    for call in selected:
        if not call.can_be_block:
            continue
        for row in reversed(rows):
            last = row[-1]
            follows = same(last.output, call.input) and not call.is_inside([last])
            if follows and kind(last) == kind(call):
                row.append(call)
                break
        else:
            rows.append([call])
    return rows


def _ranked(rows: Iterable[Calls]) -> list[Calls]:
    """Return rows of two calls or more, the most parameters first; on a tie the longer, the outer."""

    def size(row: Calls) -> tuple[int, int, int]:
        modules = nn.ModuleList({call.module for call in row})
        weights = parameters(modules)
        return weights, len(row), -row[0].path.count(".")

    trimmed = (row for row in map(_trimmed, rows) if len(row) > 1)
    return sorted(trimmed, key=size, reverse=True)


def _outermost(rows: list[Calls]) -> list[Calls]:
    """Leave out rows that run inside a block of another row."""
    every = sum(rows, Calls())
    return [row for row in rows if not row[0].is_inside(every)]


def _trimmed(row: Calls) -> Calls:
    """Leave out norms before and after the blocks, where none stands between them, and what has no weights before."""
    weighted = [i for i, call in enumerate(row) if call.has_weights]
    inner = [i for i in weighted if not is_norm(row[i])]
    if not inner:
        return []
    first = inner[0]
    last = inner[-1]
    norms = set(weighted) - set(inner)
    if any(first < i < last for i in norms):
        # one stands between blocks: those around them are kept, too
        return row[weighted[0] :]
    stop = last + 1
    while stop < len(row) and stop not in weighted:  # an activation after the last one
        stop += 1
    return row[first:stop]

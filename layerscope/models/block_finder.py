"""Which of a probe's calls are the blocks of a model.

Blocks are known by what they do, whatever they are called: one gives what the next one reads.
Every call of a module in one small forward is recorded with its input and its output, so that the
calls of a stack of blocks form a chain. Of a model with an embedding and two blocks of two parts:

    call                   reads   gives
    embed                  ids     e
    layers.0.attention     e       x
    layers.0.mlp           x       a
    layers.0               e       a
    layers.1.attention     a       y
    layers.1.mlp           y       b
    layers.1               a       b
    head                   b       logits

Two chains lead from e to b: layers.0, layers.1 and the four parts inside them. Which of them are the
blocks is looked up in this order, the surest first:

1. what the user names with `blocks`;
2. what the model declares: the modules whose outputs it records as hidden states;
3. its gradient-checkpointing layers;
4. structure: modules that stand in a list, or are alike and in a row, the most parameters first.
   Here that is the list `layers`.

A stack must be whole: no sibling of a block in its list, and none of its kind, is left out. So the
first half of a list, or one of two towers of the same class, is refused, and the reason is kept.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from torch import nn

from layerscope.models.trace import Broken, Call, Calls, Chain, end_of, is_norm, linked, same

LISTS = (nn.ModuleList, nn.ModuleDict, nn.Sequential)


@dataclass
class BlockFinder:
    """Looks for blocks among the `calls` of one forward that can be layers.

    `entry` is the module that is called, at `prefix` (with a dot at its end) in the model. `refused`
    is filled with why calls that look like blocks are none.
    """

    entry: nn.Module
    prefix: str
    calls: Calls
    refused: list[str] = field(default_factory=list)

    def stacks(self, blocks: str | None) -> Iterator[tuple[str, list[Chain]]]:
        """Yield how blocks were found, and their chains, the surest way first; `blocks` is what the user names."""
        if blocks is not None:
            chains = self._linked([self._named(blocks)])
            if chains and self._no_sibling_left(chains):
                yield "given", chains
            return
        declared = self._declared()
        sure = {
            "the model's own declaration": [c for c in self.calls if c.path in declared],
            "checkpointing layers": [c for c in self.calls if _is_checkpointing(c.module)],
        }
        for how, selected in sure.items():
            rows = _outermost(_rows(selected, self.calls))
            for groups in (self._stages_around(selected), rows):
                chains = self._linked(groups)
                if chains and self._no_sibling_left(chains):
                    yield how, chains
        for chains in self._by_structure():
            yield "structure", chains

    def notes_on(self, chains: Sequence[Chain], every: Calls, *, named: bool) -> list[str]:
        """Return what a user must know of blocks in no chain: those beside blocks that the user `named`, or any.

        `every` are all calls, those that can be no layers included.
        """
        blocks = [call for chain in chains for call in chain.blocks]
        notes: list[str] = []
        if not named:
            notes += [
                f"{path} changes the width and is not measured" for path in _wider(blocks, every)
            ]
        for group in outermost_lists(self.entry, every):
            around = any(call.holds(blocks) for call in group)
            if len(group) < 2 or around or group[0].is_inside(blocks) or set(blocks) & set(group):
                continue
            row = f"{group[0].path} … {group[-1].path}"
            notes += _ties(chains, group, row)
            if not named:
                name = self._how_to_name(group)
                notes.append(f"{row} run {_where(group, blocks)} and are not measured{name}")
        return notes

    def _by_structure(self) -> Iterator[list[Chain]]:
        """Yield chains that are whole: of one row of modules, of several parts alike, or of the stages of a model."""
        depth = getattr(getattr(self.entry, "config", None), "num_hidden_layers", None)
        for groups in self._rows_by_looks():
            for group in groups:
                looks_like_blocks = group[0].module in self._listed or group[0].is_compound
                refused = self.refused if looks_like_blocks else []
                for chain in self._linked([group], refused):
                    if depth not in (None, len(chain.blocks)):
                        continue
                    if self._is_whole([chain], refused=self.refused):
                        yield [chain]
                    parts = self._alike(chain, groups)
                    if self._are_apart(parts) and self._is_whole(parts, refused=[]):
                        yield parts
                    stages = self._stages_of(chain)
                    if stages and self._is_whole(stages, refused=[]):
                        yield stages

    def _linked(self, groups: Iterable[Calls], refused: list[str] | None = None) -> list[Chain]:
        """Return the groups of calls as chains of blocks; none where one of them is none."""
        try:
            return [linked(group, self.calls) for group in groups if group]
        except Broken as why:
            (self.refused if refused is None else refused).append(str(why))
            return []

    def _named(self, blocks: str) -> Calls:
        """Return the calls of what the user names: one module that runs several times, or else the modules in it."""
        repeated = _trimmed([c for c in self.calls if c.path == blocks and c.keeps_shape])
        if not blocks.startswith(self.prefix) or len(repeated) > 1:
            return repeated
        container = self.entry.get_submodule(blocks.removeprefix(self.prefix))
        inside = _trimmed(members(container, self.calls))
        return repeated if repeated and len(inside) < 2 else inside

    def _declared(self) -> set[str]:
        """Return the paths of the modules whose outputs the model itself declares to be its hidden states."""
        paths: set[str] = set()
        for name, owner in self.entry.named_modules():
            specs: Any = (getattr(owner, "_can_record_outputs", None) or {}).get(
                "hidden_states", ()
            )
            specs = specs if isinstance(specs, (list, tuple)) else (specs,)
            targets = (getattr(spec, "target_class", spec) for spec in specs)
            classes = tuple(kind for kind in targets if isinstance(kind, type))
            base = self.prefix + name + ("." if name else "")
            if classes:
                children = owner.named_modules()
                paths |= {base + path for path, child in children if isinstance(child, classes)}
        return paths

    def _stages_around(self, selected: Calls) -> list[Calls]:
        """Return the blocks of the stages of a hierarchical model: of selected calls that change a state's shape."""
        outer = [call for call in selected if not call.is_inside(selected)]
        if all(call.input.shape == call.output.shape for call in outer):
            return []
        groups: list[Calls] = []
        for stage in outer:
            inside = [call for call in self.calls if call.is_inside([stage])]
            checkpointing = [call for call in inside if _is_checkpointing(call.module)]
            marked = _outermost(_rows(checkpointing, inside))
            groups += (
                marked or self._ranked(_rows(inside, inside, same_class=True), lists=False)[:1]
            )
        return groups if len(groups) > 1 else []

    @cached_property
    def _listed(self) -> set[nn.Module]:
        """The modules that stand in a list."""
        containers = (module for module in self.entry.modules() if isinstance(module, LISTS))
        return {child for container in containers for child in container.children()}

    def _rows_by_looks(self) -> Iterator[list[Calls]]:
        """Yield what may be a stack by its looks: lists and like modules, then what a Sequential runs, then any row."""
        containers = [module for module in self.entry.modules() if isinstance(module, LISTS)]
        sequentials = [module for module in containers if isinstance(module, nn.Sequential)]
        lists = [members(each, self.calls) for each in containers if each not in sequentials]
        in_sequentials = {child for module in sequentials for child in module.children()}
        alike: dict[tuple[type, str], Calls] = defaultdict(list)
        for call in self.calls:
            if call.can_be_block and call.module not in in_sequentials:
                alike[type(call.module), call.parent].append(call)
        like = _rows(self.calls, self.calls, same_class=True)
        yield self._ranked([*self._in_series(), *lists, *alike.values(), *like])
        if getattr(self.entry, "config", None) is None:
            yield self._ranked([members(module, self.calls) for module in sequentials])
            yield self._ranked(_rows(self.calls, self.calls, same_parent=True))

    def _in_series(self) -> list[Calls]:
        """Join lists whose blocks read one another, one list after another or in turns, into rows."""
        rows: list[tuple[Calls, int]] = []
        for group in outermost_lists(self.entry, self.calls):
            if rows:
                before, times = rows[-1]
                joined = sorted([*before, *group], key=_number)
                if self._linked([joined], refused=[]):
                    rows[-1] = (joined, times + 1)
                    continue
            rows.append((group, 1))
        return [row for row, times in rows if times > 1]

    def _ranked(self, groups: Iterable[Calls], *, lists: bool = True) -> list[Calls]:
        """Return groups of two calls or more, the most parameters first; on a tie lists, then the longer, the outer."""
        listed = self._listed if lists else set()

        def size(group: Calls) -> tuple[int, bool, int, int]:
            modules = {call.module for call in group}
            weights = sum(p.numel() for module in modules for p in module.parameters())
            return weights, modules <= listed, len(group), -group[0].path.count(".")

        trimmed = (group for group in map(_trimmed, groups) if len(group) > 1)
        return sorted(trimmed, key=size, reverse=True)

    def _alike(self, one: Chain, groups: Iterable[Calls]) -> list[Chain]:
        """Return the chains of blocks of the same kinds as those of one, in the order in which they run."""
        like = (group for group in groups if _kinds(group) == _kinds(one.blocks))
        chains = (chain for group in like for chain in self._linked([group], refused=[]))
        by_first = {chain.blocks[0]: chain for chain in chains}
        return sorted(by_first.values(), key=lambda chain: chain.blocks[0].number)

    def _stages_of(self, one: Chain) -> list[Chain]:
        """Return the stages of a hierarchical model with these blocks, some of one block alone."""
        kinds = _kinds(one.blocks)
        like = [call for call in self.calls if type(call.module) in kinds]
        groups = _outermost(_rows(like, self.calls, same_class=True))
        if not differ_in_width(groups):
            return []
        for before, after in zip(groups, groups[1:], strict=False):
            if before[-1].output.shape == after[0].input.shape:
                return []  # of one shape they are blocks that do not read one another
        return self._linked(groups, refused=[])

    def _how_to_name(self, group: Calls) -> str:
        """Return how a list of blocks is measured, or nothing where it is no stack by itself."""
        path = group[0].parent
        chains = self._linked([self._named(path)], refused=[]) if path else []
        is_stack = [call for chain in chains for call in chain.blocks] == group
        return f": name them with `blocks={path!r}`" if is_stack else ""

    def _no_sibling_left(self, chains: Sequence[Chain]) -> bool:
        """Return whether the blocks that share a list are in one chain."""
        for chain in chains:
            for container in self._containers(chain, direct=True):
                if _left_out(members(container, self.calls), chain, self.refused):
                    return False
        return True

    def _are_apart(self, chains: Sequence[Chain]) -> bool:
        """Return whether several chains may be parts: each in a list of its own, none inside another list."""
        if len(chains) < 2:
            return False
        around = [self._containers(chain, direct=False) for chain in chains]
        direct = [self._containers(chain, direct=True) for chain in chains]
        one_each = all(len(lists) == 1 for lists in direct)
        return around == direct and one_each and len({lists[0] for lists in direct}) == len(chains)

    def _is_whole(self, chains: Sequence[Chain], refused: list[str]) -> bool:
        """Return whether no module in a list around a block is left out, nor one of the same kind."""
        blocks = [call for chain in chains for call in chain.blocks]
        ends = [call for chain in chains for call in chain.ends]
        if _are_followed(blocks, ends):
            return False
        joined = Chain(tuple(blocks), tuple(ends))
        groups = [members(each, self.calls) for each in self._containers(joined, direct=False)]
        holders = [call for call in self.calls if call in blocks or call.holds(blocks)]
        kinds = {type(call.module) for call in holders if call.is_compound}
        groups.append([c for c in self.calls if type(c.module) in kinds and c.keeps_shape])
        return not any(_left_out(group, joined, refused) for group in groups)

    def _containers(self, chain: Chain, *, direct: bool) -> list[nn.Module]:
        """Return the lists that hold blocks, and unless `direct` the lists around them; of Sequentials the first."""
        blocks = {call.module for call in chain.blocks}
        containers: list[nn.Module] = []
        for name, module in self.entry.named_modules():
            if not isinstance(module, LISTS):
                continue
            above = f"{self.prefix}{name}."
            counts_around = not direct and not isinstance(module, nn.Sequential)
            holds = any(child in blocks for child in module.children())
            if holds or (counts_around and any(c.path.startswith(above) for c in chain.blocks)):
                containers.append(module)
        return containers


def outermost_lists(entry: nn.Module, calls: Calls) -> list[Calls]:
    """Return the calls of every list of blocks that is inside no other list's block, in the order in which they run."""
    groups: list[Calls] = []
    listed: set[Call] = set()
    for container in entry.modules():
        if not isinstance(container, LISTS):
            continue
        group = _trimmed(members(container, calls))
        compound = all(call.is_compound for call in group)
        if group and compound and not listed.intersection(group) and not _are_stacks(group):
            groups.append(group)
            listed.update(group)
    return sorted(_outermost(groups), key=lambda group: group[0].number)


def differ_in_width(groups: list[Calls]) -> bool:
    """Return whether the states of several stacks of like blocks differ in width: the model is hierarchical."""
    kinds = {type(group[0].module) for group in groups}
    widths = {group[-1].output.shape[-1] for group in groups}
    return len(kinds) == 1 and len(widths) > 1


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


def _rows(
    selected: Calls, calls: Calls, *, same_class: bool = False, same_parent: bool = False
) -> list[Calls]:
    """Join calls into rows in which each reads what the one before it gives, of one width.

    Between two that the model declares one module may stand; between others (`same_class`,
    `same_parent`) none.
    """
    rows: list[Calls] = []
    for call in selected:
        if not call.can_be_block:
            continue
        for row in reversed(rows):
            last = row[-1]
            if same_class and type(last.module) is not type(call.module):
                continue
            if same_parent and last.parent != call.parent:
                continue
            follows = same(last.output, call.input) and not call.is_inside([last])
            if not follows and not same_class and not same_parent:
                follows = end_of(last, call, calls) is not None
            if follows:
                row.append(call)
                break
        else:
            rows.append([call])
    return rows


def _outermost(groups: list[Calls]) -> list[Calls]:
    """Leave out rows that run inside a block of another row."""

    def is_inner(group: Calls) -> bool:
        return any(group[0].is_inside(other) for other in groups if other is not group)

    return [group for group in groups if not is_inner(group)]


def _trimmed(group: Calls) -> Calls:
    """Leave out norms before and after the blocks, where none stands between them, and what has no weights before."""
    weighted = [i for i, call in enumerate(group) if call.has_weights]
    inner = [i for i in weighted if not is_norm(group[i])]
    if not inner:
        return []
    first, last = inner[0], inner[-1]
    if any(first < i < last and i not in inner for i in weighted):
        return group[weighted[0] :]
    stop = last + 1
    while stop < len(group) and stop not in weighted:  # an activation after the last one
        stop += 1
    return group[first:stop]


def _are_stacks(group: Calls) -> bool:
    """Return whether calls are not of blocks but of rows of them: Sequentials that hold modules of different kinds."""
    if len(group) < 2 or not all(isinstance(call.module, nn.Sequential) for call in group):
        return False
    kinds = [{type(child) for child in call.module.children()} for call in group]
    return len(set().union(*kinds)) == sum(map(len, kinds))


def _kinds(calls: Iterable[Call]) -> set[type]:
    return {type(call.module) for call in calls}


def _number(call: Call) -> int:
    return call.number


def _is_checkpointing(module: nn.Module) -> bool:
    from transformers.modeling_layers import GradientCheckpointingLayer

    return isinstance(module, GradientCheckpointingLayer)


def _are_followed(blocks: Calls, ends: Calls) -> bool:
    """Return whether a module with matrices follows every block but the last: those are blocks too."""
    between = [end for end, block in zip(ends[:-1], blocks, strict=False) if end is not block]
    wide = any(p.ndim > 1 for end in between for p in end.module.parameters())
    return wide and len(between) == len(blocks) - 1


def _left_out(group: Calls, chain: Chain, refused: list[str]) -> bool:
    """Return whether a call that looks like a block is in a group and not in a chain, nor around or inside a block."""
    for call in group:
        if call in (*chain.blocks, *chain.ends):
            continue
        if call.holds(chain.blocks) or call.is_inside(chain.blocks):
            continue
        if call.has_weights and not is_norm(call):
            paths = [block.path for block in chain.blocks]
            row, them = paths[0], "it"
            if len(paths) > 1:
                row, them = f"{paths[0]} … {paths[-1]}", "them"
            refused.append(
                f"{call.path} is run as well as {row}, and not in a row with {them}: name the module that holds the "
                "blocks to be measured with `blocks`"
            )
            return True
    return False


def _ties(chains: Sequence[Chain], group: Calls, row: str) -> Iterator[str]:
    """Yield what layers have to do with another list: its output is layer 0, or its outputs are the layers."""
    for chain in chains:
        first = chain.blocks[0].input
        feeding = next((call for call in group if same(call.output, first)), None)
        if feeding is not None:
            yield f"layer 0 is the output of {feeding.path}, a block of another list ({row})"
        elif set(chain.ends) & set(group):
            yield f"layers are the outputs of {row}, which run after the blocks of this list"


def _wider(blocks: Calls, calls: Calls) -> list[str]:
    """Return the modules beside blocks, of their kind and no single layer, that give states of another width."""
    kinds = {(type(call.module), call.parent) for call in blocks if call.is_compound}
    like = (call for call in calls if (type(call.module), call.parent) in kinds)
    wider = (call.path for call in like if call.input.shape[-1] != call.output.shape[-1])
    return list(dict.fromkeys(wider))


def _where(group: Calls, blocks: Calls) -> str:
    """Return where a list of blocks runs, seen from the blocks that are measured."""
    numbers = [call.number for call in blocks]
    if group[-1].number < min(numbers):
        return "before layer 0"
    return "after the last layer" if group[0].number > max(numbers) else "beside these blocks"

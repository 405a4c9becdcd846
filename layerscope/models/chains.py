"""Which of a probe's calls may be the blocks: what the model declares, what it checkpoints, what is alike in a row."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import chain

from torch import Tensor, nn

from layerscope.models.forward import Inputs
from layerscope.models.links import Broken, Chain, end_of, linked
from layerscope.models.siblings import LISTS, are_apart, check_siblings, check_whole, members
from layerscope.models.trace import Call, Calls, is_norm, same


def candidates(
    entry: nn.Module, prefix: str, calls: Calls, blocks: str | None, refused: list[str]
) -> Iterator[tuple[str, list[Chain]]]:
    """Yield how blocks were looked for, and the chains found so, the surest way first.

    Args:
        entry: the module that is called.
        prefix: its path in the model, with a dot at its end.
        calls: every call of the probe.
        blocks: the path that the user names, if any.
        refused: is filled with why calls that look like blocks are none.

    """
    if blocks is not None:
        found = _checked([_named(entry, prefix, calls, blocks)], calls, refused)
        yield "given", found if check_siblings(entry, prefix, found, calls, refused) else []
        return
    declared = _declared(entry, prefix)
    chosen = {
        "the model's own declaration": [c for c in calls if c.path in declared],
        "checkpointing layers": [c for c in calls if _is_checkpointing(c.module)],
    }
    for how, selected in chosen.items():
        for groups in (_stage_chains(selected, calls), _outermost(_chains(selected, calls))):
            found = _checked(groups, calls, refused)
            yield how, found if check_siblings(entry, prefix, found, calls, refused) else []
    config = getattr(entry, "config", None)
    depth = getattr(config, "num_hidden_layers", None)
    listed = {id(child) for module in entry.modules() if isinstance(module, LISTS) for child in module.children()}
    for groups in _structures(entry, calls, listed, any_class=config is None):
        for group in groups:
            like_blocks = id(group[0].module) in listed or next(group[0].module.children(), None) is not None
            for one in _checked([group], calls, refused if like_blocks else []):
                if depth not in (None, len(one.blocks)):
                    continue
                if check_whole(entry, prefix, [one], calls, refused):
                    yield "structure", [one]
                parts = _alike(one, groups, calls)
                for found in (parts if are_apart(entry, prefix, parts) else [], _stages(one, calls)):
                    yield "structure", found if found and check_whole(entry, prefix, found, calls, []) else []


def _alike(one: Chain, groups: Iterable[Calls], calls: Calls) -> list[Chain]:
    """The chains of blocks of the same kinds as those of one, in the order in which they run."""
    kinds = {type(call.module) for call in one.blocks}
    like = (group for group in groups if {type(call.module) for call in group} == kinds)
    found = {id(each.blocks[0]): each for group in like for each in _checked([group], calls, [])}
    return sorted(found.values(), key=lambda each: calls.index(each.blocks[0]))


def _stages(one: Chain, calls: Calls) -> list[Chain]:
    """The stages of a hierarchical model with these blocks, some of one block alone; nothing where it has none.

    Two chains of one shape in turn are no stages but a stack whose blocks do not read one another.
    """
    kinds = {type(call.module) for call in one.blocks}
    groups = _outermost(_chains([call for call in calls if type(call.module) in kinds], calls, same_class=True))
    turns = zip(groups, groups[1:], strict=False)
    if not differ_in_width(groups) or any(a[-1].returned.shape == b[0].given.shape for a, b in turns):
        return []
    return _checked(groups, calls, [])


def _checked(groups: Iterable[Calls], calls: Calls, refused: list[str]) -> list[Chain]:
    """The groups of calls as chains of blocks; none where one of them is none."""
    try:
        return [linked(group, calls) for group in groups if group]
    except Broken as why:
        refused.append(str(why))
        return []


def _structures(entry: nn.Module, calls: Calls, listed: set[int], any_class: bool) -> Iterator[list[Calls]]:
    """Yield what may be a stack by its looks: lists and like modules, then what a Sequential runs, then any row."""
    sequential: list[Calls] = []
    lists: list[Calls] = []
    for module in entry.modules():
        if isinstance(module, LISTS):
            (sequential if isinstance(module, nn.Sequential) else lists).append(_trimmed(members(module, calls)))
    in_row = {
        id(child) for module in entry.modules() if isinstance(module, nn.Sequential) for child in module.children()
    }
    alike: dict[tuple[type, str], Calls] = defaultdict(list)
    for call in calls:
        if call.keeps_shape and not call.passes_on and id(call.module) not in in_row:
            alike[type(call.module), call.path.rpartition(".")[0]].append(call)
    yield _ranked([*lists, *alike.values(), *_chains(calls, calls, same_class=True)], listed)
    if any_class:
        yield _ranked(sequential, listed)
        yield _ranked(_chains(calls, calls, same_parent=True), listed)


def _ranked(groups: Iterable[Calls], listed: set[int]) -> list[Calls]:
    """Groups of two calls or more, those with the most parameters first; on a tie lists, then the longer, the outer."""

    def size(group: Calls) -> tuple[int, bool, int, int]:
        weights = Chain(tuple(group), ()).parameters
        return weights, all(id(c.module) in listed for c in group), len(group), -group[0].path.count(".")

    return sorted((group for group in map(_trimmed, groups) if len(group) > 1), key=size, reverse=True)


def _named(entry: nn.Module, prefix: str, calls: Calls, blocks: str) -> Calls:
    """The calls of what the user names: of one module that runs several times, or else of the modules in it."""
    own = _trimmed([call for call in calls if call.path == blocks and call.keeps_shape])
    if not blocks.startswith(prefix) or len(own) > 1:
        return own
    inside = _trimmed(members(entry.get_submodule(blocks.removeprefix(prefix)), calls))
    return own if own and len(inside) < 2 else inside


def _declared(entry: nn.Module, prefix: str) -> set[str]:
    """Paths of the modules whose outputs the model itself declares to be its hidden states."""
    paths: set[str] = set()
    for name, owner in entry.named_modules():
        specs = (getattr(owner, "_can_record_outputs", None) or {}).get("hidden_states", ())
        specs = specs if isinstance(specs, (list, tuple)) else (specs,)
        named = [getattr(spec, "target_class", spec) for spec in specs]
        classes = tuple(kind for kind in named if isinstance(kind, type))
        base = prefix + name + ("." if name else "")
        paths |= {base + child for child, module in owner.named_modules() if classes and isinstance(module, classes)}
    return paths


def _stage_chains(selected: Calls, calls: Calls) -> list[Calls]:
    """Return the blocks of every stage of a hierarchical model, or nothing where the model has no stages.

    Stages are calls, among those `selected` by the model's own word, that change a state's shape; the last may keep it.
    """
    outer = [call for call in selected if not any(call.path.startswith(other.path + ".") for other in selected)]
    if all(call.given.shape == call.returned.shape for call in outer):
        return []
    inside = [[call for call in calls if call.path.startswith(stage.path + ".")] for stage in outer]
    chains: list[Calls] = []
    for own in inside:
        marked = _outermost(_chains([call for call in own if _is_checkpointing(call.module)], own))
        chains += marked or _ranked(_chains(own, own, same_class=True), set())[:1]
    return chains if len(chains) > 1 else []


def differ_in_width(chains: list[Calls]) -> bool:
    """Return whether the states of several stacks of like blocks differ in width: the model is hierarchical."""
    kinds = {type(chain[0].module) for chain in chains}
    return len(chains) > 1 and len(kinds) == 1 and len({chain[-1].returned.shape[-1] for chain in chains}) > 1


def has_every_token(call: Call, inputs: Inputs) -> bool:
    """Return whether a call gives a state for every token of a text: not an expert's, and not with channels first."""
    ids = inputs.named.get("input_ids")
    state = call.returned
    return ids is None or (state.ndim == 3 and (state.shape[1] >= ids.shape[1] or is_turned(state, inputs)))


def is_turned(state: Tensor, inputs: Inputs) -> bool:
    """Return whether the state of a text has its tokens before its samples, [T, B, D]: XLNet's have."""
    ids = inputs.named.get("input_ids")
    return ids is not None and state.ndim == 3 and state.shape[1] == len(ids) < ids.shape[1] <= len(state)


def _is_checkpointing(module: nn.Module) -> bool:
    from transformers.modeling_layers import GradientCheckpointingLayer

    return isinstance(module, GradientCheckpointingLayer)


def _chains(selected: Calls, calls: Calls, *, same_class: bool = False, same_parent: bool = False) -> list[Calls]:
    """Join calls into chains in which each reads what the one before it gives, of one width.

    Between two that the model declares one module may stand; between others (`same_class`, `same_parent`) none.
    """
    chains: list[Calls] = []
    for call in selected:
        if not call.keeps_shape or call.passes_on:
            continue
        for joined in reversed(chains):
            last = joined[-1]
            if same_class and type(last.module) is not type(call.module):
                continue
            if same_parent and last.path.rpartition(".")[0] != call.path.rpartition(".")[0]:
                continue
            exact = same(last.returned, call.given) and not call.path.startswith(last.path + ".")
            if exact or (not same_class and not same_parent and end_of(last, call, calls) is not None):
                joined.append(call)
                break
        else:
            chains.append([call])
    return chains


def _outermost(groups: list[Calls]) -> list[Calls]:
    """Leave out chains that run inside a block of another chain."""
    roots = [tuple(call.path + "." for call in group) for group in groups]
    return [
        group
        for i, group in enumerate(groups)
        if not group[0].path.startswith(tuple(chain.from_iterable(roots[:i] + roots[i + 1 :])))
    ]


def _trimmed(group: Calls) -> Calls:
    """Leave out norms before and after the blocks, where none stands between them, and what has no weights before."""
    blocks = [i for i, call in enumerate(group) if next(call.module.parameters(), None) is not None]
    inner = [i for i in blocks if not is_norm(group[i])]
    if not inner:
        return []
    between = any(inner[0] < i < inner[-1] and i not in inner for i in blocks)
    start, stop = (blocks[0], len(group)) if between else (inner[0], inner[-1] + 1)
    while not between and stop < len(group) and stop not in blocks:  # an activation after the last one
        stop += 1
    return group[start:stop]

"""Which of a probe's calls are the blocks: what the model declares, what it checkpoints, what is alike in a row.

A stack must be whole: no sibling of a block in its list, and none of its kind, is left out.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from torch import nn

from layerscope.models.trace import Broken, Calls, Chain, end_of, is_norm, linked, same

LISTS = (nn.ModuleList, nn.ModuleDict, nn.Sequential)


def candidates(
    entry: nn.Module, prefix: str, calls: Calls, blocks: str | None, refused: list[str]
) -> Iterator[tuple[str, list[Chain]]]:
    """Yield how blocks were looked for, and the chains found so, the surest way first.

    `entry` is the module that is called, at `prefix` (with a dot at its end) in the model; `blocks`
    is the path that the user names, if any; `refused` is filled with why calls that look like
    blocks are none.
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
    listed = {
        id(child)
        for module in entry.modules()
        if isinstance(module, LISTS)
        for child in module.children()
    }
    for groups in _structures(entry, calls, listed, any_class=config is None):
        for group in groups:
            like_blocks = (
                id(group[0].module) in listed or next(group[0].module.children(), None) is not None
            )
            for one in _checked([group], calls, refused if like_blocks else []):
                if depth not in (None, len(one.blocks)):
                    continue
                if check_whole(entry, prefix, [one], calls, refused):
                    yield "structure", [one]
                parts = _alike(one, groups, calls)
                for found in (
                    parts if are_apart(entry, prefix, parts) else [],
                    _stages(one, calls),
                ):
                    yield (
                        "structure",
                        found if found and check_whole(entry, prefix, found, calls, []) else [],
                    )


def _alike(one: Chain, groups: Iterable[Calls], calls: Calls) -> list[Chain]:
    """The chains of blocks of the same kinds as those of one, in the order in which they run."""
    kinds = {type(call.module) for call in one.blocks}
    like = (group for group in groups if {type(call.module) for call in group} == kinds)
    found = {id(each.blocks[0]): each for group in like for each in _checked([group], calls, [])}
    return sorted(found.values(), key=lambda each: calls.index(each.blocks[0]))


def _stages(one: Chain, calls: Calls) -> list[Chain]:
    """The stages of a hierarchical model with these blocks, some of one block alone; nothing where it has none."""
    kinds = {type(call.module) for call in one.blocks}
    groups = _outermost(
        _chains([call for call in calls if type(call.module) in kinds], calls, same_class=True)
    )
    turns = zip(
        groups, groups[1:], strict=False
    )  # of one shape they are blocks that do not read one another
    if not differ_in_width(groups) or any(
        a[-1].returned.shape == b[0].given.shape for a, b in turns
    ):
        return []
    return _checked(groups, calls, [])


def _checked(groups: Iterable[Calls], calls: Calls, refused: list[str]) -> list[Chain]:
    """The groups of calls as chains of blocks; none where one of them is none."""
    try:
        return [linked(group, calls) for group in groups if group]
    except Broken as why:
        refused.append(str(why))
        return []


def _structures(
    entry: nn.Module, calls: Calls, listed: set[int], any_class: bool
) -> Iterator[list[Calls]]:
    """Yield what may be a stack by its looks: lists and like modules, then what a Sequential runs, then any row."""
    containers = [module for module in entry.modules() if isinstance(module, LISTS)]
    rows = [module for module in containers if isinstance(module, nn.Sequential)]
    lists = [members(module, calls) for module in containers if module not in rows]
    in_row = {id(child) for module in rows for child in module.children()}
    alike: dict[tuple[type, str], Calls] = defaultdict(list)
    for call in calls:
        if call.keeps_shape and not call.passes_on and id(call.module) not in in_row:
            alike[type(call.module), call.path.rpartition(".")[0]].append(call)
    series = in_series(outermost_lists(entry, calls), calls)
    yield _ranked(
        [*series, *lists, *alike.values(), *_chains(calls, calls, same_class=True)], listed
    )
    if any_class:
        yield _ranked([members(module, calls) for module in rows], listed)
        yield _ranked(_chains(calls, calls, same_parent=True), listed)


def outermost_lists(entry: nn.Module, calls: Calls) -> list[Calls]:
    """Return the calls of every list of blocks that is inside no other list's block, in the order in which they run."""
    groups: list[Calls] = []
    listed: set[int] = set()
    for container in entry.modules():
        group = _trimmed(members(container, calls)) if isinstance(container, LISTS) else []
        compound = all(next(call.module.children(), None) is not None for call in group)
        if compound and not listed.intersection(map(id, group)) and not _are_stacks(group):
            groups.append(group)
            listed.update(map(id, group))
    return sorted(
        _outermost([group for group in groups if group]), key=lambda group: calls.index(group[0])
    )


def _are_stacks(group: Calls) -> bool:
    """Return whether calls are not of blocks but of rows of them: Sequentials that hold modules of different kinds."""
    kinds = [{type(child) for child in call.module.children()} for call in group]
    all_rows = all(isinstance(call.module, nn.Sequential) for call in group)
    return all_rows and len(group) > 1 and len(set[type]().union(*kinds)) == sum(map(len, kinds))


def in_series(lists: Sequence[Calls], calls: Calls) -> list[Calls]:
    """Join lists whose blocks read one another, one list after another or in turns, into the rows that they form."""
    rows: list[tuple[Calls, int]] = []
    for group in lists:
        if rows:
            joined = sorted([*rows[-1][0], *group], key=calls.index)
            if _checked([joined], calls, []):
                rows[-1] = (joined, rows[-1][1] + 1)
                continue
        rows.append((group, 1))
    return [row for row, times in rows if times > 1]


def notes_on(
    entry: nn.Module,
    prefix: str,
    chains: Sequence[Chain],
    calls: Calls,
    every: Calls,
    *,
    named: bool,
) -> list[str]:
    """Return what a user must know of blocks in no chain: those beside blocks that the user `named`, or any.

    `calls` are those that can be layers, among `every` call.
    """
    blocks = {id(call) for chain in chains for call in chain.blocks}
    paths = [call.path for chain in chains for call in chain.blocks]
    notes = (
        []
        if named
        else [f"{path} changes the width and is not measured" for path in _wider(chains, every)]
    )
    for group in outermost_lists(entry, every):
        around = any(path.startswith(f"{call.path}.") for call in group for path in paths)
        inside = group[0].path.startswith(tuple(f"{path}." for path in paths))
        if len(group) < 2 or around or inside or blocks.intersection(map(id, group)):
            continue
        row = f"{group[0].path} … {group[-1].path}"
        for chain in chains:
            first = chain.blocks[0].given
            if feeding := next((call for call in group if same(call.returned, first)), None):
                notes.append(
                    f"layer 0 is the output of {feeding.path}, a block of another list ({row})"
                )
            elif any(end is call for end in chain.ends for call in group):
                notes.append(
                    f"layers are the outputs of {row}, which run after the blocks of this list"
                )
        if not named:
            where = _where(group, [call for chain in chains for call in chain.blocks], every)
            notes.append(
                f"{row} run {where} and are not measured{_how_to_name(entry, prefix, group, calls)}"
            )
    return notes


def _wider(chains: Sequence[Chain], calls: Calls) -> list[str]:
    """Return the modules beside blocks, of their kind and no single layer, that give states of another width."""
    blocks = [
        call
        for chain in chains
        for call in chain.blocks
        if next(call.module.children(), None) is not None
    ]
    kinds = {(type(call.module), call.path.rpartition(".")[0]) for call in blocks}
    like = (call for call in calls if (type(call.module), call.path.rpartition(".")[0]) in kinds)
    return list(
        dict.fromkeys(call.path for call in like if call.given.shape[-1] != call.returned.shape[-1])
    )


def _where(group: Calls, blocks: Calls, calls: Calls) -> str:
    """Return where a list of blocks runs, seen from the blocks that are measured."""
    if calls.index(group[-1]) < min(map(calls.index, blocks)):
        return "before layer 0"
    return (
        "after the last layer"
        if calls.index(group[0]) > max(map(calls.index, blocks))
        else "beside these blocks"
    )


def _how_to_name(entry: nn.Module, prefix: str, group: Calls, calls: Calls) -> str:
    """Return how a list of blocks is measured, or nothing where it is no stack by itself."""
    path = group[0].path.rpartition(".")[0]
    chains = _checked([_named(entry, prefix, calls, path)], calls, []) if path else []
    whole = [call for chain in chains for call in chain.blocks] == group
    return f": name them with `blocks={path!r}`" if whole else ""


def _ranked(groups: Iterable[Calls], listed: set[int]) -> list[Calls]:
    """Groups of two calls or more, those with the most parameters first; on a tie lists, then the longer, the outer."""

    def size(group: Calls) -> tuple[int, bool, int, int]:
        weights = sum(
            p.numel() for module in {c.module for c in group} for p in module.parameters()
        )
        return (
            weights,
            all(id(c.module) in listed for c in group),
            len(group),
            -group[0].path.count("."),
        )

    return sorted(
        (group for group in map(_trimmed, groups) if len(group) > 1), key=size, reverse=True
    )


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
        paths |= {
            base + child
            for child, module in owner.named_modules()
            if classes and isinstance(module, classes)
        }
    return paths


def _stage_chains(selected: Calls, calls: Calls) -> list[Calls]:
    """Return the blocks of the stages of a hierarchical model: of selected calls that change a state's shape."""
    outer = [
        call
        for call in selected
        if not any(call.path.startswith(other.path + ".") for other in selected)
    ]
    if all(call.given.shape == call.returned.shape for call in outer):
        return []
    chains: list[Calls] = []
    for stage in outer:
        own = [call for call in calls if call.path.startswith(stage.path + ".")]
        marked = _outermost(_chains([call for call in own if _is_checkpointing(call.module)], own))
        chains += marked or _ranked(_chains(own, own, same_class=True), set())[:1]
    return chains if len(chains) > 1 else []


def differ_in_width(chains: list[Calls]) -> bool:
    """Return whether the states of several stacks of like blocks differ in width: the model is hierarchical."""
    kinds = {type(chain[0].module) for chain in chains}
    return (
        len(chains) > 1
        and len(kinds) == 1
        and len({chain[-1].returned.shape[-1] for chain in chains}) > 1
    )


def _is_checkpointing(module: nn.Module) -> bool:
    from transformers.modeling_layers import GradientCheckpointingLayer

    return isinstance(module, GradientCheckpointingLayer)


def _chains(
    selected: Calls, calls: Calls, *, same_class: bool = False, same_parent: bool = False
) -> list[Calls]:
    """Join calls into chains in which each reads what the one before it gives, of one width.

    Between two that the model declares one module may stand; between others (`same_class`,
    `same_parent`) none.
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
            if exact or (
                not same_class and not same_parent and end_of(last, call, calls) is not None
            ):
                joined.append(call)
                break
        else:
            chains.append([call])
    return chains


def _outermost(groups: list[Calls]) -> list[Calls]:
    """Leave out chains that run inside a block of another chain."""

    def inside(group: Calls, other: Calls) -> bool:
        return other is not group and group[0].path.startswith(
            tuple(f"{call.path}." for call in other)
        )

    return [group for group in groups if not any(inside(group, other) for other in groups)]


def _trimmed(group: Calls) -> Calls:
    """Leave out norms before and after the blocks, where none stands between them, and what has no weights before."""
    blocks = [i for i, call in enumerate(group) if next(call.module.parameters(), None) is not None]
    inner = [i for i in blocks if not is_norm(group[i])]
    if not inner:
        return []
    between = any(inner[0] < i < inner[-1] and i not in inner for i in blocks)
    start, stop = (blocks[0], len(group)) if between else (inner[0], inner[-1] + 1)
    while (
        not between and stop < len(group) and stop not in blocks
    ):  # an activation after the last one
        stop += 1
    return group[start:stop]


def members(container: nn.Module, calls: Calls) -> Calls:
    """Return the calls of the modules in a container, of lists in it those of theirs, that keep a state's shape."""
    called = {id(call.module) for call in calls}

    def inside(module: nn.Module) -> Iterator[int]:
        for child in module.children():
            if id(child) in called:
                yield id(child)
            else:
                yield from inside(child)

    kept = set(inside(container))
    return [
        call
        for call in calls
        if id(call.module) in kept and call.keeps_shape and not call.passes_on
    ]


def check_siblings(
    entry: nn.Module, prefix: str, found: Sequence[Chain], calls: Calls, refused: list[str]
) -> bool:
    """Return whether the blocks that share a list are in one chain; says in `refused` where they are in several."""
    return not any(
        _left_out(members(container, calls), one, refused)
        for one in found
        for container in _containers(entry, prefix, one, direct=True)
    )


def are_apart(entry: nn.Module, prefix: str, found: Sequence[Chain]) -> bool:
    """Return whether several chains may be parts of a model: each in a list of its own, none inside another list."""
    if len(found) < 2:
        return False
    around = [[id(c) for c in _containers(entry, prefix, one, direct=False)] for one in found]
    own = [[id(c) for c in _containers(entry, prefix, one, direct=True)] for one in found]
    return around == own and len({each for one in own for each in one}) == len(found) == sum(
        map(len, own)
    )


def check_whole(
    entry: nn.Module, prefix: str, chains: Sequence[Chain], calls: Calls, refused: list[str]
) -> bool:
    """Return whether chains are whole: no module in a list around a block is left out, nor one of the same kind."""
    found = Chain(
        tuple(c for one in chains for c in one.blocks), tuple(c for one in chains for c in one.ends)
    )
    between = [
        end for end, block in zip(found.ends[:-1], found.blocks, strict=False) if end is not block
    ]
    wide = any(p.ndim > 1 for end in between for p in end.module.parameters())
    if wide and len(between) == len(found.blocks) - 1:
        return False  # another block follows every one of them
    inside = [
        members(container, calls) for container in _containers(entry, prefix, found, direct=False)
    ]
    above = {
        call.path.rsplit(".", n)[0]
        for call in found.blocks
        for n in range(call.path.count(".") + 1)
    }
    kinds = {
        type(call.module)
        for call in calls
        if call.path in above and next(call.module.children(), None)
    }
    like = [call for call in calls if type(call.module) in kinds and call.keeps_shape]
    return not any(_left_out(group, found, refused) for group in (*inside, like))


def _containers(
    entry: nn.Module, prefix: str, found: Chain, *, direct: bool
) -> Iterator[nn.Module]:
    """The lists that hold blocks of a chain, and without `direct` the lists around these; of Sequentials the first."""
    blocks, paths = {id(call.module) for call in found.blocks}, [call.path for call in found.blocks]
    for name, module in entry.named_modules():
        if isinstance(module, LISTS):
            holds = any(id(child) in blocks for child in module.children())
            above = not direct and not isinstance(module, nn.Sequential)
            if holds or (above and any(path.startswith(f"{prefix}{name}.") for path in paths)):
                yield module


def _left_out(group: Calls, found: Chain, refused: list[str]) -> bool:
    """Whether a call that looks like a block is in a group and not in a chain, nor around or inside a block of it."""
    paths = [call.path for call in found.blocks]
    inside, ends = (
        tuple(f"{path}." for path in paths),
        {id(call) for call in (*found.blocks, *found.ends)},
    )
    for call in group:
        around = any(path.startswith(f"{call.path}.") for path in paths)
        if id(call) in ends or around or call.path.startswith(inside):
            continue
        if next(call.module.parameters(), None) is not None and not is_norm(call):
            row, them = (
                (paths[0], "it") if len(paths) == 1 else (f"{paths[0]} … {paths[-1]}", "them")
            )
            refused.append(
                f"{call.path} is run as well as {row}, and not in a row with {them}: name the module that holds the "
                "blocks to be measured with `blocks`"
            )
            return True
    return False

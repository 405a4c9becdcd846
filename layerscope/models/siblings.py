"""Whether a stack of blocks is whole: no sibling of a block in its list, and none of its kind, is left out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torch import nn

from layerscope.models.links import Chain
from layerscope.models.trace import Call, Calls, is_norm

LISTS = (nn.ModuleList, nn.ModuleDict, nn.Sequential)


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
    return [call for call in calls if id(call.module) in kept and call.keeps_shape and not call.passes_on]


def check_siblings(entry: nn.Module, prefix: str, found: Sequence[Chain], calls: Calls, refused: list[str]) -> bool:
    """Return whether the blocks that share a list are in one chain; says in `refused` where they are in several."""
    for one in found:
        for container in _containers(entry, prefix, one, direct=True):
            if _left_out(members(container, calls), one, refused):
                return False
    return True


def are_apart(entry: nn.Module, prefix: str, found: Sequence[Chain]) -> bool:
    """Return whether several chains may be parts of a model: each in a list of its own, and none inside another list.

    Chains inside the blocks of a list are no parts: the list is what holds the layers.
    """
    if len(found) < 2:
        return False
    around = [[id(c) for c in _containers(entry, prefix, one, direct=False)] for one in found]
    own = [[id(c) for c in _containers(entry, prefix, one, direct=True)] for one in found]
    return around == own and len({each for one in own for each in one}) == len(found) == sum(map(len, own))


def check_whole(entry: nn.Module, prefix: str, chains: Sequence[Chain], calls: Calls, refused: list[str]) -> bool:
    """Return whether chains found by structure are whole stacks; says in `refused` what they would leave out.

    Neither may a module in a list with a block, or with what holds one, be left out, nor one of the same kind.
    """
    found = Chain(tuple(c for one in chains for c in one.blocks), tuple(c for one in chains for c in one.ends))
    between = [end for end, block in zip(found.ends[:-1], found.blocks, strict=False) if end is not block]
    if between and len(between) == len(found.blocks) - 1 and any(map(_has_matrices, between)):
        return False  # another block follows every one of them
    inside = [members(container, calls) for container in _containers(entry, prefix, found, direct=False)]
    above = {call.path.rsplit(".", n)[0] for call in found.blocks for n in range(call.path.count(".") + 1)}
    kinds = {type(call.module) for call in calls if call.path in above and next(call.module.children(), None)}
    like = [call for call in calls if type(call.module) in kinds and call.keeps_shape]
    return not any(_left_out(group, found, refused) for group in (*inside, like))


def _containers(entry: nn.Module, prefix: str, found: Chain, *, direct: bool) -> Iterator[nn.Module]:
    """The lists that hold blocks of a chain, and without `direct` the lists around these; of Sequentials the first."""
    blocks = {id(call.module) for call in found.blocks}
    above = tuple(call.path + "." for call in found.blocks)
    for name, module in entry.named_modules():
        if not isinstance(module, LISTS):
            continue
        holds = any(id(child) in blocks for child in module.children())
        around = any(path.startswith(f"{prefix}{name}.") for path in above) and not isinstance(module, nn.Sequential)
        if holds or (around and not direct):
            yield module


def _left_out(group: Calls, found: Chain, refused: list[str]) -> bool:
    """Whether a call that looks like a block is in a group and not in a chain, nor around or inside a block of it."""
    paths = [call.path for call in found.blocks]
    inside = tuple(f"{path}." for path in paths)
    ends = {id(call) for call in (*found.blocks, *found.ends)}

    def apart(call: Call) -> bool:
        around = any(path.startswith(f"{call.path}.") for path in paths)
        return id(call) not in ends and not around and not call.path.startswith(inside)

    for call in group:
        if apart(call) and next(call.module.parameters(), None) is not None and not is_norm(call):
            row = paths[0] if len(paths) == 1 else f"{paths[0]} … {paths[-1]}"
            refused.append(
                f"{call.path} is run as well as {row}, and not in a row with {'it' if len(paths) == 1 else 'them'}: "
                "name the module that holds the blocks to be measured with `blocks`"
            )
            return True
    return False


def _has_matrices(call: Call) -> bool:
    return any(p.ndim > 1 for p in call.module.parameters())

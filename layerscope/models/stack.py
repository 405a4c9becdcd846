"""Find a model's stack of blocks and its final norm by watching one small forward."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import nn

from layerscope.errors import LayerscopeError, choices, near
from layerscope.models.forward import Inputs, forward, is_out_of_memory
from layerscope.models.trace import Call, is_norm, same, trace


@dataclass(frozen=True)
class Stack:
    """Where the layers of one part of a model are.

    `blocks` names the module of every block execution in order (a shared block stands there once per run), so
    `depth` = L; `norm` is the model's final norm, if it has one; `entry` is the module that is called.
    """

    part: str
    entry: str
    blocks: tuple[str, ...]
    norm: str | None
    width: int
    found_by: str
    outputs: int  # how many values a block returns; 0 for a bare tensor

    @property
    def depth(self) -> int:
        """L, the number of block executions."""
        return len(self.blocks)


class SeveralParts(LayerscopeError):
    """A model with several stacks of blocks, and none of them named."""

    def __init__(self, parts: list[str]) -> None:
        super().__init__(f"this model has several stacks of blocks: choose one with --part {' or '.join(parts)}")
        self.parts = parts


def find_stacks(module: nn.Module, inputs: Inputs, blocks: str | None = None) -> list[tuple[Stack, list[Call]]]:
    """Return every stack of blocks that a probe forward runs through, each with the calls it was seen in.

    The blocks are those the model itself declares (`_can_record_outputs`), else its gradient-checkpointing layers,
    else the largest run of like modules; always confirmed by calls: the output of one is the input of the next.
    """
    found: list[tuple[Stack, list[Call]]] = []
    for prefix, entry in _entries(module, inputs):
        calls = trace(entry, prefix, inputs)
        for how, chains in _candidates(entry, prefix, calls, blocks):
            if chains:
                found += [(_stack(chain, prefix.rstrip("."), how), calls) for chain in chains]
                break
    if not found:
        where = f"under {blocks!r}" if blocks else "in this model"
        raise LayerscopeError(
            f"no stack of blocks was found {where}: name the module that holds them with --blocks PATH, such as "
            f"{_likely(module)}"
        )
    return _with_parts_and_norms(found)


def choose(stacks: list[Stack], part: str | None) -> Stack:
    """Return the stack of the named part; a model with several and no name is an error that lists them."""
    names = [stack.part for stack in stacks]
    if part is None:
        if len(stacks) == 1:
            return stacks[0]
        raise SeveralParts(names)
    for stack in stacks:
        if part == stack.part or stack.blocks[0].startswith(part + "."):
            return stack
    if len(stacks) == 1:
        raise LayerscopeError(f"part {part!r} does not exist: this model has one stack of blocks, leave --part out")
    raise LayerscopeError(f"part {part!r} does not exist{choices(part, names, 'this model has')}")


def module_at(module: nn.Module, path: str, option: str) -> nn.Module:
    """Return the submodule at a dotted path; a wrong path is an error that names the option."""
    try:
        if not path:
            raise AttributeError
        return module.get_submodule(path)
    except AttributeError:
        known = [name for name, _ in module.named_modules() if name] + (["none"] if option == "--norm" else [])
        mend = near(path, known) or f": name one of its modules, such as {_likely(module)}"
        raise LayerscopeError(f"{option} {path!r} does not exist in this model{mend}") from None


@torch.no_grad()
def check_norm(module: nn.Module, stack: Stack, path: str) -> None:
    """Raise where what the user calls the final norm runs blocks, or does not turn a state into one of its width."""
    norm = module_at(module, path, "--norm")
    if any(block == path or block.startswith(path + ".") for block in stack.blocks):
        raise LayerscopeError(f"--norm {path!r} is or holds a block: name the norm that follows the blocks, or none")
    parameter = next(module.parameters(), torch.empty(0))
    state = torch.zeros(1, 2, stack.width, dtype=parameter.dtype, device=parameter.device)
    try:
        fits = norm(state).shape == state.shape
    except Exception:  # a module of another kind fails in its own way
        fits = False
    if not fits:
        raise LayerscopeError(f"--norm {path!r} does not take a state of {stack.width} numbers: name a norm, or none")


def _entries(module: nn.Module, inputs: Inputs) -> Iterator[tuple[str, nn.Module]]:
    """Yield the model, or where it does not run on these inputs alone (CLIP), each of its towers that does."""
    try:
        forward(module, inputs)
    except LayerscopeError:
        raise
    except Exception as error:
        if is_out_of_memory(error):
            raise LayerscopeError(
                "out of memory with one short sample: take --dtype bfloat16 or another --device"
            ) from error
        towers = [
            (f"{name}.", child)
            for name, child in module.named_modules()
            if name and hasattr(child, "main_input_name") and _runs(child, inputs)
        ]
        outer = [t for t in towers if not any(t[0] != o[0] and t[0].startswith(o[0]) for o in towers)]
        if not outer:
            line = str(error).strip().splitlines() or [type(error).__name__]
            raise LayerscopeError(f"the model does not run on this data: {line[0][:200]}") from error
        yield from outer
    else:
        yield "", module


def _runs(module: nn.Module, inputs: Inputs) -> bool:
    try:
        forward(module, inputs)
    except Exception:
        return False
    return True


def _candidates(
    entry: nn.Module, prefix: str, calls: list[Call], blocks: str | None
) -> Iterator[tuple[str, list[list[Call]]]]:
    if blocks is not None:
        inside = [c for c in calls if c.path == blocks or c.path.rpartition(".")[0] == blocks]
        kept = [c for c in inside if c.keeps_shape]  # the user knows what stands between them
        yield "given", [kept] if kept else []
        return
    declared = _declared(entry, prefix)
    yield "the model's own declaration", _outermost(_chains([c for c in calls if c.path in declared]))
    yield "checkpointing layers", _outermost(_chains([c for c in calls if _is_checkpointing(c.module)]))
    like = [chain for chain in _chains(calls, same_class=True) if len(chain) > 1]
    yield "structure", _largest(like)
    yield "structure", _largest([chain for chain in _chains(calls) if len(chain) > 1])


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


def _is_checkpointing(module: nn.Module) -> bool:
    from transformers.modeling_layers import GradientCheckpointingLayer

    return isinstance(module, GradientCheckpointingLayer)


def _chains(calls: list[Call], same_class: bool = False) -> list[list[Call]]:
    """Join calls into chains in which the output of each is the input of the next, of one width."""
    chains: list[list[Call]] = []
    for call in calls:
        if not call.keeps_shape or same(call.given, call.returned):
            continue  # dropout and identity pass a state on; they are no blocks
        for chain in reversed(chains):
            last = chain[-1]
            if same_class and type(last.module) is not type(call.module):
                continue
            if not call.path.startswith(last.path + ".") and same(last.returned, call.given):
                chain.append(call)
                break
        else:
            chains.append([call])
    return chains


def _outermost(chains: list[list[Call]]) -> list[list[Call]]:
    """Leave out chains that run inside a block of another chain."""
    roots = [{c.path + "." for c in chain} for chain in chains]
    return [
        chain
        for i, chain in enumerate(chains)
        if not any(chain[0].path.startswith(root) for j, other in enumerate(roots) if j != i for root in other)
    ]


def _largest(chains: list[list[Call]]) -> list[list[Call]]:
    """The chain with the most parameters, without a norm at its end; on a tie the longer, then the outer one."""

    def size(chain: list[Call]) -> tuple[int, int, int]:
        modules = {id(c.module): c.module for c in chain}
        weights = sum(p.numel() for m in modules.values() for p in m.parameters())
        return weights, len(chain), -chain[0].path.count(".")

    chains = [_without_norms(chain) for chain in chains]
    chains = [chain for chain in chains if len(chain) > 1]
    return [max(chains, key=size)] if chains else []


def _without_norms(chain: list[Call]) -> list[Call]:
    start, stop = 0, len(chain)
    while stop > start and is_norm(chain[stop - 1]):
        stop -= 1
    while start < stop and is_norm(chain[start]):
        start += 1
    return chain[start:stop]


def _stack(chain: list[Call], entry: str, how: str) -> Stack:
    paths = tuple(call.path for call in chain)
    return Stack("model", entry, paths, None, chain[-1].returned.shape[-1], how, chain[-1].outputs)


def _with_parts_and_norms(found: list[tuple[Stack, list[Call]]]) -> list[tuple[Stack, list[Call]]]:
    names = part_names([stack.blocks[0] for stack, _ in found])
    inside = tuple(path + "." for stack, _ in found for path in stack.blocks)
    return [
        (replace(stack, part=name, norm=_final_norm(stack, calls, inside)), calls)
        for (stack, calls), name in zip(found, names, strict=True)
    ]


def _final_norm(stack: Stack, calls: list[Call], inside: tuple[str, ...]) -> str | None:
    """The normalising module that reads the last block's output (or a slice of it), outside every block."""
    last = [i for i, call in enumerate(calls) if call.path == stack.blocks[-1]][-1]
    state = calls[last].returned
    for call in calls[last + 1 :]:
        if call.path.startswith(inside):
            continue
        reads = call.given.untyped_storage().data_ptr() == state.untyped_storage().data_ptr() or same(call.given, state)
        if reads and call.given.shape[-1] == stack.width and is_norm(call):
            return call.path
    return None


def part_names(paths: list[str]) -> list[str]:
    """Short names for several stacks: the first part of their paths in which they differ."""
    if len(paths) == 1:
        return ["model"]
    split = [path.split(".") for path in paths]
    for level in zip(*split, strict=False):
        if len(set(level)) == len(paths):
            return [name.removesuffix("_model").removesuffix("_tower") for name in level]
    return paths


def _likely(module: nn.Module) -> str:
    """The longest list of modules: the best guess at what the user may mean by --blocks."""
    lists = [
        (len(child), name)
        for name, child in module.named_modules()
        if name and isinstance(child, (nn.ModuleList, nn.Sequential))
    ]
    return max(lists, default=(0, "encoder.layers"))[1]

"""Find a model's stack of blocks and its final norm by watching one small forward."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from layerscope.core import LayerscopeError, choices, first_line, near
from layerscope.models.block_finder import NAME_BLOCKS, BlockFinder
from layerscope.models.forward import Form, Inputs, forward, is_out_of_memory, setting
from layerscope.models.loops import (
    POOLED,
    interrupted_loop,
    loop_notes,
    several_streams,
    stream_notes,
)
from layerscope.models.trace import Call, Calls, is_norm, same, trace

LAYERS = "layers are states of tokens [B, T, D] or of samples [B, D] that one module hands to the next"


@dataclass(frozen=True)
class Stack:
    """Where the layers of one part of a model are.

    `blocks` names the module of every block execution in order (a shared block stands there once
    per run), so `depth` = L; `norm` is the model's final norm, if it has one; `entry` is the module
    that is called; `forms` are how the blocks return their states.
    """

    part: str
    entry: str
    blocks: tuple[str, ...]
    norm: str | None
    width: int
    found_by: str
    forms: tuple[Form, ...] = ()
    notes: tuple[str, ...] = ()
    """What the user must know of blocks that are in no stack."""

    def check_single(self, blocks: Iterable[int]) -> None:
        """Raise where one of these blocks, counted from 1, cannot be left out alone."""
        for block in blocks:
            path = self.blocks[block - 1]
            times = self.blocks.count(path)
            if times > 1:
                raise LayerscopeError(
                    f"{path} is run as {times} blocks: none of them can be dropped alone, cut the model with `layer`"
                )

    def block_modules(self, module: nn.Module) -> list[nn.Module]:
        """Return the blocks of a model in order, one that runs several times once."""
        return [module.get_submodule(path) for path in dict.fromkeys(self.blocks)]

    def until(self, layer: int) -> "Stack":
        """Return the stack of the blocks up to a layer."""
        return replace(self, blocks=self.blocks[:layer], forms=self.forms[:layer])

    @property
    def depth(self) -> int:
        """L, the number of block executions."""
        return len(self.blocks)


class SeveralParts(LayerscopeError):
    """A model with several stacks of blocks, and none of them named."""

    def __init__(self, parts: list[str]) -> None:
        self.parts = parts
        named = " or ".join(f"`part={part!r}`" for part in parts)
        super().__init__(
            f"this model has several stacks of blocks: choose one with {named}"
        )


def find_stacks(
    module: nn.Module, inputs: Inputs, blocks: str | None = None
) -> list[Stack]:
    """Return every stack of blocks that a probe forward runs through; `blocks` is what the user names."""
    stacks: list[Stack] = []
    refused: list[str] = []
    streams: list[str] = []
    loops: list[str] = []
    for prefix, entry in _entries(module, inputs):
        every = trace(entry, prefix, inputs)
        calls = [call for call in every if _has_every_token(call, inputs)]
        finder = BlockFinder(entry, prefix, calls, refused)
        found_by, rows = finder.find(blocks)
        notes = []
        if not rows:
            streams += several_streams(every, inputs)
            loops += interrupted_loop(calls)
        if blocks is None:
            for row in finder.beside(rows, every):
                ends = f"{row[0].path} … {row[-1].path}"
                notes.append(f"{ends} are not measured: {NAME_BLOCKS}")
        all_blocks = sum(rows, Calls())
        for row in rows:
            paths = tuple(call.path for call in row)
            width = row[-1].output.shape[-1]
            hidden_size = None
            if "input_ids" in inputs.named:
                hidden_size = setting(entry, "hidden_size")
            notes += (*loop_notes(paths), *stream_notes(width, hidden_size))
            stack = Stack(
                part="",
                entry=prefix.rstrip("."),
                blocks=paths,
                norm=_final_norm(row, calls, all_blocks),
                width=width,
                found_by=found_by,
                forms=tuple(call.form for call in row),
                notes=tuple(notes),
            )
            stacks.append(stack)
    if not stacks:
        fault = "no stack of blocks was found in this model"
        mend = "name the module that holds them with `blocks`"
        if blocks:
            fault = f"blocks {blocks!r} does not name a stack of blocks"
            mend = "name another module, which holds such a row"
        reasons = [*streams, *refused, *loops, f"{LAYERS}; {mend}, or {POOLED}"]
        raise LayerscopeError(f"{fault}: {reasons[0]}")
    pairs = zip(stacks, _part_names(stacks), strict=True)
    return [replace(stack, part=part) for stack, part in pairs]


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
    hint = choices(part, names, "these data go through")
    raise LayerscopeError(f"part {part!r} does not exist{hint}")


def is_decoder(module: nn.Module, stack: Stack) -> bool:
    """Return whether the stack is the decoder of an encoder-decoder: one that reads ids of its own."""
    if not setting(module, "is_encoder_decoder"):
        return False
    model: Any = module  # every such model of transformers has this method
    return module.get_submodule(stack.blocks[0]) in set(model.get_decoder().modules())


def tokens_read(module: nn.Module, stack: Stack, inputs: Inputs) -> int | None:
    """Return how many tokens of each text the stack is fed, None of what is no text."""
    name = "input_ids"
    if "decoder_input_ids" in inputs.named and is_decoder(module, stack):
        name = "decoder_input_ids"
    if name not in inputs.named:
        return None
    return inputs.named[name].shape[1]


def module_at(module: nn.Module, path: str, option: str) -> nn.Module:
    """Return the submodule at a dotted path; a wrong path is an error that names the option."""
    modules = dict(module.named_modules(remove_duplicate=False))
    del modules[""]
    if path in modules:
        return module.get_submodule(path)
    mend = near(path, [*modules, "none"]) or ": name one of its modules"
    raise LayerscopeError(f"{option} {path!r} does not exist in this model{mend}")


@torch.no_grad()
def check_norm(module: nn.Module, stack: Stack, path: str) -> None:
    """Raise where what the user calls the final norm does not turn a state into one of its width."""
    norm = module_at(module, path, "norm")
    parameter = next(module.parameters(), torch.empty(0))
    state = torch.zeros(
        1, 2, stack.width, dtype=parameter.dtype, device=parameter.device
    )
    fits = False
    with suppress(Exception):  # a module of another kind fails in its own way
        fits = norm(state).shape == state.shape
    if not fits:
        raise LayerscopeError(
            f"norm {path!r} does not take a state of {stack.width} numbers: name a norm, or none"
        )


def _entries(module: nn.Module, inputs: Inputs) -> list[tuple[str, nn.Module]]:
    """Return the model, or where it does not run on these inputs alone (CLIP), each of its towers that does."""
    try:
        forward(module, inputs)
        return [("", module)]
    except LayerscopeError:
        raise
    except Exception as error:
        if is_out_of_memory(error):
            raise LayerscopeError(
                "out of memory with one short sample: try `dtype='bfloat16'` or another `device`"
            ) from error
        towers: list[tuple[str, nn.Module]] = []
        for name, child in module.named_modules():
            inside = any(name.startswith(outer) for outer, _ in towers)
            if name and not inside and hasattr(child, "main_input_name"):
                with suppress(Exception):
                    forward(child, inputs)
                    towers.append((f"{name}.", child))
        if not towers:
            raise LayerscopeError(
                f"the model does not run on this data: {first_line(error, 200)}"
            ) from error
        return towers


def _has_every_token(call: Call, inputs: Inputs) -> bool:
    """Return whether a call gives a state for every token of a text: not an expert's, nor one with channels first."""
    ids = inputs.named.get("input_ids")
    state = call.output
    if ids is None:
        return True
    return state.ndim == 3 and state.shape[1] >= ids.shape[1]


def _final_norm(row: Calls, calls: Calls, all_blocks: Calls) -> str | None:
    """Return the normalising module that reads the last layer (or a slice of it), outside every block of any stack."""
    last = row[-1]
    state = last.output
    later = calls[calls.index(last) + 1 :]
    # norms inside a later block, or the inner part of a head, are its own
    blocks = [call for call in later if call.can_be_block and not is_norm(call)]
    others = all_blocks + [call for call in blocks if not call.holds(row[:1])]
    for call in later:
        if call.is_inside(others) or call.input.shape[-1] != state.shape[-1]:
            continue
        memory = call.input.untyped_storage().data_ptr()
        is_slice = memory == state.untyped_storage().data_ptr()
        if (is_slice or same(call.input, state)) and is_norm(call):
            return call.path
    return None


def _part_names(stacks: list[Stack]) -> list[str]:
    """Return short names: a tower's own, or the first part of the paths in which all of them differ."""
    names: Sequence[str] = [stacks[0].entry.rpartition(".")[2] or "model"]
    if len(stacks) > 1:
        paths = [stack.blocks[0] for stack in stacks]
        levels = zip(*(path.split(".") for path in paths), strict=False)
        differing = (level for level in levels if len(set(level)) == len(level))
        names = next(differing, paths)
    return [name.removesuffix("_model").removesuffix("_tower") for name in names]

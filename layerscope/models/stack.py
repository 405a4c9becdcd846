"""Find a model's stack of blocks and its final norm by watching one small forward."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from layerscope.core.errors import LayerscopeError, choices, count, first_line, near
from layerscope.models.block_finder import LISTS, BlockFinder, differ_in_width, outermost_lists
from layerscope.models.forward import Form, Inputs, forward, is_out_of_memory
from layerscope.models.trace import Call, Calls, Chain, is_norm, same, trace

STAGE = "stage-{}"
"""Part names of a hierarchical model, from 1."""


@dataclass(frozen=True)
class Stack:
    """Where the layers of one part of a model are.

    `blocks` names the module of every block execution in order (a shared block stands there once
    per run), so `depth` = L; `norm` is the model's final norm, if it has one; `entry` is the module
    that is called.
    """

    part: str
    entry: str
    blocks: tuple[str, ...]
    norm: str | None
    width: int
    found_by: str
    forms: tuple[Form, ...] = ()  # of what each block returns
    ends: tuple[str, ...] = ()
    """The modules that give the layers: the blocks, or what reads a block's output before the next one does."""
    added: bool = False
    """Whether the model adds a block's output to its input: their sum is the layer."""

    turned: bool = False
    """Whether the blocks read and give tokens before samples, [T, B, D]."""

    notes: tuple[str, ...] = ()
    """What the user must know of blocks that are in no stack."""

    def check_plain(self, what: str) -> None:
        """Raise where a layer is not what its block gives, which `what` needs."""
        between, lack = [path for path in self.ends if path not in self.blocks], ""
        if self.added:
            lack = f"give the layers: this model adds what {self.blocks[0]} gives by itself"
        elif self.turned:
            lack = "read states [B, T, D]: those of this model read [T, B, D]"
        elif between:
            lack = f"give the layers: this model runs {between[0]} after one"
        if lack:
            raise LayerscopeError(f"{what} need blocks that {lack}")

    def check_single(self, blocks: Iterable[int]) -> None:
        """Raise where one of these blocks, counted from 1, cannot be left out alone."""
        self.check_plain("checkpoints without some of their blocks")
        for path in (self.blocks[block - 1] for block in blocks):
            if (times := self.blocks.count(path)) > 1:
                raise LayerscopeError(
                    f"{path} is run as {times} blocks: none of them can be dropped alone, cut the model with `layer`"
                )

    def until(self, layer: int) -> "Stack":
        """Return the stack of the blocks up to a layer."""
        return replace(
            self, blocks=self.blocks[:layer], forms=self.forms[:layer], ends=self.ends[:layer]
        )

    @property
    def depth(self) -> int:
        """L, the number of block executions."""
        return len(self.blocks)


class SeveralParts(LayerscopeError):
    """A model with several stacks of blocks, and none of them named; `differ` is how its stages differ in width."""

    def __init__(self, stacks: list[Stack]) -> None:
        self.parts, self.differ = [stack.part for stack in stacks], ""
        named = " or ".join(f"`part={part!r}`" for part in self.parts)
        line = f"this model has several stacks of blocks: choose one with {named}"
        if self.parts[0] == STAGE.format(1):
            sizes = ", ".join(f"{s.part} ({count(s.depth, 'layer')} of {s.width})" for s in stacks)
            self.differ = f"the layers of this model differ in width, {sizes}"
            line = f"the layers of this model differ in width: choose one of its stages with `part`, {sizes}"
        super().__init__(line)


class OtherTower(LayerscopeError):
    """A part that is not the `tower` through which the data go."""

    def __init__(self, part: str, tower: str) -> None:
        self.tower = tower
        super().__init__(f"part {part!r} does not read these data: they go through {tower}")


def find_stacks(module: nn.Module, inputs: Inputs, blocks: str | None = None) -> list[Stack]:
    """Return every stack of blocks that a probe forward runs through.

    The blocks are those the model itself declares (`_can_record_outputs`), else its
    gradient-checkpointing layers, else the largest run of like modules; always confirmed by calls:
    the output of one is the input of the next.
    """
    stacks: list[tuple[Stack, Chain, Calls]] = []
    refused: list[str] = []
    seen: Calls = []
    for prefix, entry in _entries(module, inputs):
        every = trace(entry, prefix, inputs)
        calls = [call for call in every if _has_every_token(call, inputs)]
        seen += calls
        finder = BlockFinder(entry, prefix, calls, refused)
        found_by, chains = next(finder.stacks(blocks), ("", []))
        notes = finder.notes_on(chains, every, named=blocks is not None) if chains else []
        for chain in chains:
            stack = _stack_of(chain, prefix.rstrip("."), found_by, inputs)
            stacks.append((replace(stack, notes=tuple(notes)), chain, calls))
    if not stacks:
        fault = "no stack of blocks was found in this model"
        if blocks:
            fault = f"blocks {blocks!r} does not name a stack of blocks"
        why = refused[0] if refused else _what_instead(module, seen)
        raise LayerscopeError(f"{fault}: {why}")
    all_blocks = [call for _, chain, _ in stacks for call in chain.blocks]
    names = _part_names([stack for stack, _, _ in stacks], [chain for _, chain, _ in stacks])
    return [
        replace(stack, part=name, norm=_final_norm(chain, calls, all_blocks))
        for (stack, chain, calls), name in zip(stacks, names, strict=True)
    ]


def _stack_of(chain: Chain, entry: str, found_by: str, inputs: Inputs) -> Stack:
    """Return a chain as a stack, which has neither its name nor its norm yet."""
    state = chain.blocks[-1].output
    return Stack(
        part="",
        entry=entry,
        blocks=tuple(call.path for call in chain.blocks),
        norm=None,
        width=state.shape[-1],
        found_by=found_by,
        forms=tuple(call.form for call in chain.blocks),
        ends=tuple(call.path for call in chain.ends),
        added=chain.added,
        turned=_is_turned(state, inputs),
    )


def choose(stacks: list[Stack], part: str | None) -> Stack:
    """Return the stack of the named part; a model with several and no name is an error that lists them."""
    names = [stack.part for stack in stacks]
    if part is None:
        if len(stacks) == 1:
            return stacks[0]
        raise SeveralParts(stacks)
    for stack in stacks:
        if part == stack.part or stack.blocks[0].startswith(part + "."):
            return stack
    if len(stacks) > 1:
        raise LayerscopeError(
            f"part {part!r} does not exist{choices(part, names, 'this model has')}"
        )
    if stacks[0].entry:
        raise OtherTower(part, names[0])
    raise LayerscopeError(
        f"part {part!r} does not exist: this model has one stack of blocks, leave `part` out"
    )


def is_decoder(module: nn.Module, stack: Stack) -> bool:
    """Return whether the stack is the decoder of an encoder-decoder: one that reads ids of its own."""
    if not getattr(getattr(module, "config", None), "is_encoder_decoder", False):
        return False
    model: Any = module  # every such model of transformers has this method
    return module.get_submodule(stack.blocks[0]) in set(model.get_decoder().modules())


def tokens_read(module: nn.Module, stack: Stack, inputs: Inputs) -> int | None:
    """Return how many tokens of each text the stack is fed, None of what is no text."""
    two_texts = "decoder_input_ids" in inputs.named
    name = "decoder_input_ids" if two_texts and is_decoder(module, stack) else "input_ids"
    return inputs.named[name].shape[1] if name in inputs.named else None


def module_at(module: nn.Module, path: str, option: str) -> nn.Module:
    """Return the submodule at a dotted path; a wrong path is an error that names the option."""
    paths: dict[str, nn.Module] = {
        name: child for name, child in module.named_modules(remove_duplicate=False) if name
    }
    if path not in paths:
        mend = near(path, [*paths, *(["none"] if option == "norm" else [])])
        mend = mend or f": name one of its modules{_such_as(module)}"
        raise LayerscopeError(f"{option} {path!r} does not exist in this model{mend}")
    return paths[path]


@torch.no_grad()
def check_norm(module: nn.Module, stack: Stack, path: str) -> None:
    """Raise where what the user calls the final norm runs blocks, or does not turn a state into one of its width."""
    norm = module_at(module, path, "norm")
    if any(block == path or block.startswith(path + ".") for block in stack.blocks):
        raise LayerscopeError(
            f"norm {path!r} is or holds a block: name the norm that follows the blocks, or none"
        )
    parameter = next(module.parameters(), torch.empty(0))
    state = torch.zeros(1, 2, stack.width, dtype=parameter.dtype, device=parameter.device)
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
    """Return whether a call gives a state for every token of a text: not an expert's, and not with channels first."""
    ids, state = inputs.named.get("input_ids"), call.output
    return ids is None or (
        state.ndim == 3 and (state.shape[1] >= ids.shape[1] or _is_turned(state, inputs))
    )


def _is_turned(state: Tensor, inputs: Inputs) -> bool:
    """Return whether a state has its tokens before its samples, [T, B, D]: XLNet's have."""
    inputs_read = inputs.named.get("input_ids", inputs.positional)
    if inputs_read is None or inputs_read.ndim < 2 or state.ndim != 3:
        return False
    return state.shape[1] == len(inputs_read) < inputs_read.shape[1] <= len(state)


def _final_norm(chain: Chain, calls: Calls, all_blocks: Calls) -> str | None:
    """Return the normalising module that reads the last layer (or a slice of it), outside every block of any stack."""
    last, width = chain.ends[-1], chain.blocks[-1].output.shape[-1]
    state = last.input + last.output if chain.added else last.output
    later = [c for c in calls if c.number > last.number and not c.is_inside(all_blocks)]
    others = [call for call in later if _has_own_norms(call, chain)]
    for call in later:
        if call.is_inside(others) or call.input.shape[-1] != width:
            continue
        is_slice = call.input.untyped_storage().data_ptr() == state.untyped_storage().data_ptr()
        if (is_slice or same(call.input, state)) and is_norm(call):
            return call.path
    return None


def _has_own_norms(call: Call, chain: Chain) -> bool:
    """Return whether norms inside a later call are its own: a block that changes the width, or a head's inner part."""
    if any(type(call.module) is type(block.module) for block in chain.blocks):
        return True
    return call.can_be_block and not call.holds(chain.blocks[:1]) and not is_norm(call)


def _part_names(stacks: list[Stack], chains: list[Chain]) -> list[str]:
    """Return short names: stages, a tower's own, or the first part of the paths in which all of them differ."""
    if differ_in_width([list(chain.blocks) for chain in chains]):
        return [STAGE.format(i + 1) for i in range(len(stacks))]
    names: Sequence[str] = [stacks[0].entry.rpartition(".")[2] or "model"]
    if len(stacks) > 1:
        paths = [stack.blocks[0] for stack in stacks]
        levels = zip(*(path.split(".") for path in paths), strict=False)
        names = next((level for level in levels if len(set(level)) == len(paths)), paths)
    return [name.removesuffix("_model").removesuffix("_tower") for name in names]


def _what_instead(module: nn.Module, calls: Calls) -> str:
    """Return what to do about a model without a stack of blocks, by what its modules give."""
    for path, child in module.named_modules():
        if isinstance(child, nn.RNNBase) and child.num_layers > 1:
            return _instead_of_one(child, path, calls)
    maps = any(call.output.ndim == 4 for call in calls)
    rows = any(call.keeps_shape and call.is_compound for call in calls)
    if maps and not rows:
        return (
            "its modules give maps [B, C, H, W], and layers are states of tokens [B, T, D] or samples [B, D]: pool the "
            "maps of one width to vectors yourself, and measure these with `profile(states=...)`"
        )
    paths = [group[0].parent for group in outermost_lists(module, calls)]
    such_as = next((f", such as {path}" for path in paths if path), _such_as(module))
    return f"name the module that holds them with `blocks`{such_as}"


def _instead_of_one(recurrent: nn.RNNBase, path: str, calls: Calls) -> str:
    """Return what to do about a recurrent module that runs several layers in a single call."""
    name, alone = type(recurrent).__name__, ""
    if any(call.path == path and call.keeps_shape for call in calls):
        alone = f" `blocks={path!r}` measures it as one layer, or"
    return (
        f"{path or 'the model'} is one {name} of {recurrent.num_layers} layers, which run in a single call:{alone} "
        f"build it of {name}s of one layer each in a ModuleList"
    )


def _such_as(module: nn.Module) -> str:
    """Return `", such as PATH"` with the longest list of like modules, or nothing where there is none."""
    lists = [
        (len(child), name)
        for name, child in module.named_modules()
        if name
        and isinstance(child, LISTS)
        and len({type(each) for each in child.children()}) == 1 < len(child)
        and any(p.ndim > 1 for p in child.parameters())
    ]
    return f", such as {max(lists)[1]}" if lists else ""

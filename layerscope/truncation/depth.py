"""How a config says which blocks its model has, found by what its fields do, and what a model cut so must give."""

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, combinations
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from layerscope.core import LayerscopeError, first_line, spans
from layerscope.models import Inputs, LayeredModel, Stack, made_up_samples
from layerscope.models.forward import forward, hooked
from layerscope.truncation.expected import (
    Expected,
    agrees,
    expected_at,
    gaps_in,
    last_states,
)

Field = tuple[str, ...]
"""The names of nested configs, then that of the field in the last one."""
Shapes = dict[str, torch.Size]
T = TypeVar("T")
MOST_LISTS = 4


@dataclass(frozen=True)
class Depth:
    """What holds the depth of a model: one whole number of its config, and lists of its blocks, entries or indices."""

    kind: type[nn.Module]
    stack: Stack
    number: Field
    lists: tuple[Field, ...]

    def config(self, config: Any, kept: Sequence[int]) -> Any:
        """Return a copy of the config with these blocks alone, and with what it derives from their number."""
        copied = copy.deepcopy(config)
        layers = len(kept)
        # the code it names is not needed, and will not lie beside the config
        vars(copied).pop("auto_map", None)
        for field in self.lists:
            entries = _kept_of(_get(config, field), kept, self.stack.depth)
            setattr(_get(copied, field[:-1]), field[-1], entries)
        owner = _get(copied, self.number[:-1])
        name = self.number[-1]
        setattr(owner, name, layers)
        try:
            before = vars(type(owner)(**{name: _get(config, self.number)}))
            after = vars(type(owner)(**{name: layers}))
        # one that cannot be made of its depth alone: what it derives is unknown
        except Exception:
            return copied
        set_here = {name}
        for *above, last in self.lists:
            if (*above,) == self.number[:-1]:
                set_here.add(last)
        values = vars(owner)
        for key in after.keys() & before.keys() & values.keys() - set_here:
            if before[key] != after[key] and values[key] == before[key]:
                values[key] = after[key]
        return copied

    def build(self, module: Any, kept: Sequence[int]) -> Any:
        """Return the model of some blocks, counted from 0; its weights are the full one's, in the same memory."""
        empty = _empty(self.kind, self.config(module.config, kept))
        built = _filled(empty, module, self.stack, kept)
        if built is None:
            raise LayerscopeError(
                f"{self.kind.__name__} cannot be filled with the weights of the full model"
            )
        return built


def find_depth(model: LayeredModel, expected: Expected) -> Depth:
    """Return how the config of a model holds its blocks; raises `LayerscopeError` where nothing in it does.

    Each number of the config that equals L is set to that of the blocks kept, with lists of blocks
    cut or not: the model of that must have the full one's weights but for the blocks left out, run
    that many, and give the same states.
    """
    module = model.module
    stack = model.stack
    refused = ""
    if not hasattr(module, "config"):
        raise LayerscopeError(
            f"{type(module).__name__} is a plain torch module: no config says its depth"
        )
    for kind in _kinds(module, stack):
        targets = _target_shapes(kind, module, stack, expected.kept)
        if targets is None:
            continue
        for depth in _candidates(kind, module.config, stack):
            misfit = _misfit(depth, module, expected, targets)
            if misfit is None:
                return depth
            refused = refused or misfit
    change = f"be cut at layer {len(expected.kept)}"
    refused = refused or "no number in its config sets how many it has"
    if gaps := gaps_in(expected.kept):
        change = f"drop {spans(gaps, 'block')}"
        refused += "; drop others, or cut it with `layer`"
    raise LayerscopeError(
        f"{type(module).__name__} cannot {change} as a standard checkpoint: {refused}"
    )


def depth_of(
    model: LayeredModel, samples: Sequence[Any] | None = None, kept: Sequence[int] = ()
) -> Depth:
    """Return how a model's config holds its blocks, tried on its first half or others, by made-up samples."""
    if samples is None:
        _, samples = made_up_samples(model.loaded)
    kept = kept or range(max(1, model.depth // 2))
    return find_depth(model, expected_at(model, kept, samples))


def _kinds(module: Any, stack: Stack) -> list[type[nn.Module]]:
    """The classes a checkpoint may have: of an encoder in an encoder–decoder its own class, where there is one."""
    from transformers import MODEL_FOR_TEXT_ENCODING_MAPPING

    kinds = [type(module)]
    config = module.config
    alone = MODEL_FOR_TEXT_ENCODING_MAPPING.get(type(config), None)
    if getattr(config, "is_encoder_decoder", False) and isinstance(alone, type):
        block = module.get_submodule(stack.blocks[0])
        if block in {*module.get_encoder().modules()}:
            kinds.insert(0, alone)
    return kinds


def _candidates(kind: type[nn.Module], config: Any, stack: Stack) -> Iterator[Depth]:
    """Yield what may hold the depth, the likeliest first: a number that equals it, with lists of blocks or without."""
    fields = sorted(_fields(config), key=lambda field: "layer" not in field[-1])
    values = {field: _get(config, field) for field in fields}
    lists = [field for field in fields if _is_of_blocks(values[field], stack.depth)]
    cuts = [tuple(lists), ()]
    if len(lists) <= MOST_LISTS:
        sizes = range(len(lists), -1, -1)
        cuts = [*chain.from_iterable(combinations(lists, size) for size in sizes)]
    for field in fields:
        if type(values[field]) is int and values[field] == stack.depth:
            for cut in cuts:
                yield Depth(kind, stack, field, cut)


def _fields(config: Any, above: Field = ()) -> Iterator[Field]:
    """Yield the fields of a config and of the configs in it."""
    from transformers import PretrainedConfig

    for name, value in vars(config).items():
        if isinstance(value, PretrainedConfig):
            yield from _fields(value, (*above, name))
        elif not name.startswith("_"):
            yield (*above, name)


def _get(config: Any, field: Field) -> Any:
    """Return the value of a field."""
    for name in field:
        # what is stored: a value that may vary by layer cannot be read as an attribute
        config = vars(config)[name]
    return config


def _is_of_blocks(value: Any, depth: int) -> bool:
    """Whether a value may be a list with an entry for each block, or of some blocks' indices, which rise."""
    if not isinstance(value, (list, tuple)):
        return False
    if len(value) == depth:
        return True
    if not value or any(type(entry) is not int for entry in value):
        return False
    return [*value] == sorted({*value} & {*range(depth)})


def _kept_of(value: Sequence[Any], kept: Sequence[int], depth: int) -> list[Any]:
    """Return the entries of the blocks kept, or their new indices where a list names blocks."""
    if len(value) == depth:
        return [value[block] for block in kept]
    return [kept.index(block) for block in value if block in kept]


def _misfit(
    depth: Depth, module: Any, expected: Expected, targets: Shapes
) -> str | None:
    """Return None where a candidate gives the truncated model, else why not ("": its number means something else)."""
    kept = expected.kept
    cut = depth.stack.until(len(kept))
    try:
        empty = _empty(depth.kind, depth.config(module.config, kept))
    except Exception:  # a config that nothing can be made of
        return ""
    misfit = _misshapen(_shapes(empty), targets, kept)
    if misfit is not None:
        return misfit
    built = _filled(empty, module, depth.stack, kept)
    if built is None:
        return "with fewer blocks it has buffers that the full one has not"
    states = []
    try:
        for inputs in expected.inputs:
            if _executions(built, cut, inputs) != cut.depth:
                return ""
            states.append(last_states(built, cut, inputs))
    except Exception as error:
        return f"with fewer blocks it does not run ({type(error).__name__}: {first_line(error)})"
    if all(map(agrees, states, expected.states)):
        return None
    return "its blocks compute something else than in the full model"


def _misshapen(shapes: Shapes, targets: Shapes, kept: Sequence[int]) -> str | None:
    """Return None where the weights of a candidate are the target's, else how they differ."""
    odd = sorted(shapes.keys() ^ targets.keys())
    if odd and gaps_in(kept):
        return f"its blocks differ in their weights ({odd[0]})"
    if odd:
        return ""
    for name, shape in targets.items():
        if shapes[name] != shape:
            return f"the size of its {name} depends on how many blocks it has"
    return None


def _target_shapes(
    kind: type[nn.Module], module: Any, stack: Stack, kept: Sequence[int]
) -> Shapes | None:
    """Names and shapes of the weights that stay, or None where the class does not hold the full model's."""
    try:
        class_shapes = _shapes(_empty(kind, copy.deepcopy(module.config)))
    except Exception:  # a class may raise anything where it needs more than a config
        return None
    model_shapes = _shapes(module)
    if any(model_shapes.get(name) != shape for name, shape in class_shapes.items()):
        return None
    return _moved(class_shapes, stack, kept)


def _moved(named: Mapping[str, T], stack: Stack, kept: Sequence[int]) -> dict[str, T]:
    """Return what is named by paths in a model, under its names in the model of some blocks, without the others."""
    paths: dict[str, str | None] = dict.fromkeys(stack.blocks)
    for index, block in enumerate(kept):
        paths[stack.blocks[block]] = stack.blocks[index]
    moved: dict[str, T] = {}
    for name, value in named.items():
        old = next((path for path in paths if name.startswith(f"{path}.")), None)
        if old is None:
            moved[name] = value
        elif (new := paths[old]) is not None:
            moved[new + name[len(old) :]] = value
    return moved


def _empty(kind: type[nn.Module], config: Any) -> nn.Module:
    """Return a model without weights."""
    with torch.device("meta"):
        return kind(config)


def _shapes(module: nn.Module) -> Shapes:
    """Return the shapes of a model's weights by their names."""
    return {name: tensor.shape for name, tensor in module.state_dict().items()}


def _filled(empty: Any, module: Any, stack: Stack, kept: Sequence[int]) -> Any | None:
    """Give an empty model of some blocks the full one's weights and buffers; None where one is not there."""
    weights: dict[str, Tensor] = _moved(module.state_dict(), stack, kept)
    buffers = _moved(dict(module.named_buffers()), stack, kept)
    state = {name: weights[name] for name in empty.state_dict()}
    empty.load_state_dict(state, strict=True, assign=True)
    for name, buffer in [*empty.named_buffers()]:
        if not buffer.is_meta:
            continue
        if name not in buffers:  # one that is not saved, such as a table of frequencies
            return None
        path, _, last = name.rpartition(".")
        owner = empty.get_submodule(path)
        owner.register_buffer(last, buffers[name], persistent=False)
    empty.tie_weights()
    tensors = chain(empty.parameters(), empty.buffers())
    if any(tensor.is_meta for tensor in tensors):
        return None
    generates = getattr(empty, "generation_config", None)
    if generates and hasattr(module, "generation_config"):
        empty.generation_config = copy.deepcopy(module.generation_config)
    return empty.eval()


def _executions(module: nn.Module, stack: Stack, inputs: Inputs) -> int:
    """How many times a forward runs the blocks of a stack."""
    ran: list[None] = []
    blocks = stack.block_modules(module)
    with hooked((block, None, lambda *_: ran.append(None)) for block in blocks):
        forward(module.get_submodule(stack.entry), inputs)
    return len(ran)

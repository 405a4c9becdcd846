"""How a config says how deep its model is, found by what its fields do, and what a model cut there must give."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import chain, combinations
from typing import Any

import torch
from torch import Tensor, nn

from layerscope.core.errors import LayerscopeError
from layerscope.models import LayeredModel
from layerscope.models.capture import capture, evaluating
from layerscope.models.forward import Inputs, accepts, forward, tensors_in
from layerscope.models.inspection import made_up_samples
from layerscope.models.stack import Stack

Field = tuple[str, ...]
"""The names of nested configs, then that of the field in the last one."""
Shapes = dict[str, torch.Size]
MOST_LISTS = 4
EXACT = 1e-5
"""Tolerance in float32, of a value or relative to it; in half precision two of its steps."""


@dataclass(frozen=True)
class Expected:
    """The full model at one layer, on a few samples run alone: normed `states` [1, T, D], and its head's `logits`.

    `shown`: whether the model's plain output shows its last states at all.
    """

    layer: int
    inputs: tuple[Inputs, ...]
    states: tuple[Tensor, ...]
    logits: tuple[Tensor | None, ...]
    shown: bool


@torch.inference_mode()
def expected_at(model: LayeredModel, layer: int, samples: Sequence[Any]) -> Expected:
    """Return what layer `layer` of a model gives on each of these samples."""
    module, stack, lens = model.module, model.stack, model.lens
    batches = tuple(model.encoder.batch([sample]).to(model.device) for sample in samples)
    with evaluating(module):
        found = [states_at(module, stack, inputs, layer) for inputs in batches]
        last, output = last_states(module, stack, batches[0]), forward(base_of(module, stack), batches[0])
        logits = tuple(
            None if lens is None else lens.sequence_logits(states["raw"], inputs)
            for states, inputs in zip(found, batches, strict=True)
        )
    shown = any(agrees(tensor, last) for tensor in tensors_in(output))
    return Expected(layer, batches, tuple(states[model.final] for states in found), logits, shown)


def states_at(module: nn.Module, stack: Stack, inputs: Inputs, layer: int) -> dict[str, Tensor]:
    """Return the states of one layer by site: raw, and normed where the model has a final norm."""
    states: dict[str, Tensor] = {}

    def keep(at: int, site: str, tokens: Tensor) -> None:
        if at == layer:
            states[site] = tokens.clone()

    capture(module, stack, inputs, keep, until=layer)
    return states


@torch.inference_mode()
def last_states(module: nn.Module, stack: Stack, inputs: Inputs) -> Tensor:
    """Return the last layer's states, after the final norm where there is one."""
    states = states_at(module, stack, inputs, stack.depth)
    return states.get("normed", states["raw"])


def base_of(module: nn.Module, stack: Stack) -> nn.Module:
    """Return the module whose plain output is the states: the tower that is run, or the model without its head."""
    entry = module.get_submodule(stack.entry)
    base = getattr(entry, "base_model", entry)
    main = str(getattr(entry, "main_input_name", "input_ids"))
    # a model's base may be a part of it that reads states
    return base if isinstance(base, nn.Module) and accepts(base, main) else entry


def close_in(dtype: torch.dtype, exact: float = EXACT, steps: int = 2) -> float:
    """Return how far numbers of this dtype may be apart: `exact`, or `steps` of its steps where these are coarser."""
    return max(exact, steps * torch.finfo(dtype).eps)


def agrees(one: Tensor, two: Tensor, *tolerance: Any) -> bool:
    """Return whether two tensors hold the same numbers, as close as `close_in` says of a dtype and this tolerance."""
    close = close_in(one.dtype, *tolerance)
    return one.shape == two.shape and torch.allclose(one.float(), two.to(one.device).float(), rtol=close, atol=close)


def difference(one: Tensor | None, two: Tensor) -> float:
    """Return the largest difference between two tensors, infinite where there is none or their shapes differ."""
    if one is None or one.shape != two.shape:
        return float("inf")
    return float((one.float() - two.to(one.device).float()).abs().max())


@dataclass(frozen=True)
class Depth:
    """What holds the depth of a model: one whole number of its config, and lists with an entry a layer."""

    kind: type[nn.Module]
    number: Field
    lists: tuple[Field, ...]

    def config(self, config: Any, layers: int) -> Any:
        """Return a copy of the config that is `layers` deep, with what it derives from that, as names of stages."""
        copied = copy.deepcopy(config)
        vars(copied).pop("auto_map", None)  # the code it names is not needed, and will not lie beside the config
        for field in self.lists:
            setattr(_get(copied, field[:-1]), field[-1], _get(config, field)[:layers])
        owner, name = _get(copied, self.number[:-1]), self.number[-1]
        setattr(owner, name, layers)
        try:
            before, after = (vars(type(owner)(**{name: number})) for number in (_get(config, self.number), layers))
        except Exception:  # a config that cannot be made of its depth alone derives nothing that is known here
            return copied
        cut = {field[-1] for field in self.lists if field[:-1] == self.number[:-1]}
        for key in after.keys() & before.keys() & vars(owner).keys() - cut - {name}:
            if before[key] != after[key] and vars(owner)[key] == before[key]:
                vars(owner)[key] = after[key]
        return copied

    def build(self, module: Any, layers: int) -> Any:
        """Return the model that ends at a layer; its weights are those of the full one, in the same memory."""
        built = _filled(_hollow(self.kind, self.config(module.config, layers)), module)
        if built is None:
            raise LayerscopeError(f"{self.kind.__name__} cannot be filled with the weights of the full model")
        return built


def find_depth(model: LayeredModel, expected: Expected) -> Depth:
    """Return how the config of a model holds the depth of its stack; raises `LayerscopeError` where nothing in it does.

    Each number of the config that equals L is set to `expected.layer`, with lists of L entries cut or not: the model of
    that must have the full one's weights but for the blocks left out, run that many, and give the states of that layer.
    """
    module, stack, refused = model.module, model.stack, "no number in its config sets how many blocks it has"
    if not hasattr(module, "config"):
        raise LayerscopeError(f"{type(module).__name__} is a plain torch module: no config says its depth")
    for kind in _kinds(module, stack):
        wanted = _wanted(kind, module, stack, expected.layer)
        if wanted is None:
            continue
        for depth in _candidates(kind, module.config, stack.depth):
            misfit = _misfit(depth, module, stack, expected, wanted)
            if misfit is None:
                return depth
            refused = misfit or refused
    raise LayerscopeError(
        f"{type(module).__name__} cannot be cut at layer {expected.layer} as a standard checkpoint: {refused}"
    )


def depth_of(model: LayeredModel, samples: Sequence[Any] | None = None, layer: int | None = None) -> Depth:
    """Return how a model's config holds its depth, tried on its middle layer or another, by made-up samples."""
    samples = made_up_samples(model.loaded)[1] if samples is None else samples
    return find_depth(model, expected_at(model, layer or max(1, model.stack.depth // 2), samples))


def shallower(stack: Stack, layers: int) -> Stack:
    """Return the stack of the truncated model."""
    return replace(stack, blocks=stack.blocks[:layers], ends=stack.ends[:layers])


def _kinds(module: Any, stack: Stack) -> list[type[nn.Module]]:
    """The classes a checkpoint may have: of an encoder in an encoder–decoder its own class, where there is one."""
    from transformers import MODEL_FOR_TEXT_ENCODING_MAPPING

    alone = MODEL_FOR_TEXT_ENCODING_MAPPING.get(type(module.config), None)
    if not getattr(module.config, "is_encoder_decoder", False) or not isinstance(alone, type):
        return [type(module)]
    block = module.get_submodule(stack.blocks[0])
    return [alone] * any(child is block for child in module.get_encoder().modules()) + [type(module)]


def _candidates(kind: type[nn.Module], config: Any, depth: int) -> Iterator[Depth]:
    values = {field: _get(config, field) for field in _fields(config)}
    lists = [field for field, value in values.items() if isinstance(value, (list, tuple)) and len(value) == depth]
    cuts = [cut for n in range(len(lists), -1, -1) for cut in combinations(lists, n)]
    cuts = cuts if len(lists) <= MOST_LISTS else [tuple(lists), ()]
    for field, value in values.items():
        if isinstance(value, int) and not isinstance(value, bool) and value == depth:
            yield from (Depth(kind, field, cut) for cut in cuts)


def _fields(config: Any, above: Field = ()) -> Iterator[Field]:
    from transformers import PretrainedConfig

    for name, value in vars(config).items():
        if isinstance(value, PretrainedConfig):
            yield from _fields(value, (*above, name))
        elif not name.startswith("_"):
            yield (*above, name)


def _get(config: Any, field: Field) -> Any:
    for name in field:
        config = vars(config)[name]  # what is stored: a value that may vary by layer cannot be read as an attribute
    return config


def _misfit(depth: Depth, module: Any, stack: Stack, expected: Expected, wanted: Shapes) -> str | None:
    """Return None where a candidate gives the truncated model, else why not ("": its number means something else)."""
    try:
        hollow = _hollow(depth.kind, depth.config(module.config, expected.layer))
    except Exception:  # a config that nothing can be made of
        return ""
    shapes, name = _shapes(hollow), f"{'.'.join(depth.number)} {expected.layer}"
    if shapes.keys() != wanted.keys():
        return ""
    if other := next((key for key in wanted if shapes[key] != wanted[key]), None):
        return f"the size of its {other} depends on how many blocks it has"
    built = _filled(hollow, module)
    if built is None:
        return f"a model of {name} has buffers that the full one has not"
    cut = shallower(stack, expected.layer)
    try:
        if any(_executions(built, cut, inputs) != cut.depth for inputs in expected.inputs):
            return ""
        found = [last_states(built, cut, inputs) for inputs in expected.inputs]
    except Exception as error:
        return f"with {name} it does not run ({type(error).__name__})"
    same = all(map(agrees, found, expected.states))
    return None if same else f"with {name} its blocks compute something else than in the full model"


def _wanted(kind: type[nn.Module], module: Any, stack: Stack, layers: int) -> Shapes | None:
    """Names and shapes of the weights that stay, or None where the class does not hold the full model's."""
    try:
        whole = _shapes(_hollow(kind, copy.deepcopy(module.config)))
    except Exception:
        return None
    full = _shapes(module)
    if any(full.get(name) != shape for name, shape in whole.items()):
        return None
    kept = set(stack.blocks[:layers])
    gone = tuple(f"{path}." for path in stack.blocks[layers:] if path not in kept)
    return {name: shape for name, shape in whole.items() if not (gone and name.startswith(gone))}


def _hollow(kind: type[nn.Module], config: Any) -> nn.Module:
    with torch.device("meta"):
        return kind(config)


def _shapes(module: nn.Module) -> Shapes:
    return {name: tensor.shape for name, tensor in module.state_dict().items()}


def _filled(hollow: Any, module: Any) -> Any | None:
    """Give a hollow model the weights and buffers of the full one by name; None where one is not there."""
    weights: dict[str, Tensor] = module.state_dict()
    buffers = dict(module.named_buffers())
    hollow.load_state_dict({name: weights[name] for name in hollow.state_dict()}, strict=True, assign=True)
    for name in [name for name, buffer in hollow.named_buffers() if buffer.is_meta]:
        if name not in buffers:  # one that is not saved, such as a table of frequencies
            return None
        owner, _, own = name.rpartition(".")
        hollow.get_submodule(owner).register_buffer(own, buffers[name], persistent=False)
    hollow.tie_weights()
    if any(tensor.is_meta for tensor in chain(hollow.parameters(), hollow.buffers())):
        return None
    if getattr(hollow, "generation_config", None) is not None and hasattr(module, "generation_config"):
        hollow.generation_config = copy.deepcopy(module.generation_config)
    return hollow.eval()


def _executions(module: nn.Module, stack: Stack, inputs: Inputs) -> int:
    """How many times a forward runs the blocks of a stack."""
    ran: list[None] = []
    with ExitStack() as hooks:
        for path in dict.fromkeys(stack.blocks):
            block = module.get_submodule(path)
            hooks.enter_context(block.register_forward_hook(lambda *_: ran.append(None)))
        forward(module.get_submodule(stack.entry), inputs)
    return len(ran)

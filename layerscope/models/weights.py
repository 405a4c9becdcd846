"""A model's weights, whatever keeps them: plain, quantised, or offloaded by accelerate until they are used."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from layerscope.core.errors import LayerscopeError


def input_device(module: nn.Module) -> torch.device:
    """Return the device that a model takes its inputs on; one whose weights are all offloaded names it in its hooks."""
    here = next((p.device for p in module.parameters() if not p.is_meta), None)
    if here is not None:
        return here
    device = next((hook.execution_device for child in module.modules() for hook in _hooks(child)), "cpu")
    return torch.device(device)


def is_offloaded(module: nn.Module) -> bool:
    """Return whether some weights are kept in CPU memory or in files, and brought only for their layer's forward."""
    return any(parameter.is_meta for parameter in module.parameters())


def is_quantised(module: nn.Module) -> bool:
    """Return whether some weights are integers with scales: by transformers, torchao, quanto or torch itself."""
    if getattr(module, "hf_quantizer", None) is not None or getattr(module, "is_quantized", False):
        return True
    packed = any({"quantized", "quanto"} & {*type(child).__module__.split(".")} for child in module.modules())
    return packed or any(is_traceable_wrapper_subclass(weight) for weight in module.parameters())


def numbers_of(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield every tensor of a model's state by name: offloaded ones one by one, quantised ones as what they hold."""
    for name, value in module.state_dict().items():
        if isinstance(value, Tensor) and value.is_meta:
            path, _, own = name.rpartition(".")
            kept = [hook.weights_map for hook in _hooks(module.get_submodule(path)) if own in hook.weights_map]
            if not kept:
                raise LayerscopeError(f"the weight {name} is on the meta device: load the model with its weights")
            yield from _plain(name, kept[0][own])
        else:
            yield from _plain(name, value)


def _plain(name: str, value: object) -> Iterator[tuple[str, Tensor]]:
    if isinstance(value, (tuple, list)):  # packed weights and their bias
        for index, item in enumerate(value):
            yield from _plain(f"{name}.{index}", item)
    elif isinstance(value, Tensor) and is_traceable_wrapper_subclass(value):
        inside, _ = value.__tensor_flatten__()
        for part in inside:
            yield from _plain(f"{name}.{part}", getattr(value, str(part)))
    elif isinstance(value, Tensor):
        yield name, value.dequantize() if value.is_quantized else value


def _hooks(module: nn.Module) -> Iterator[Any]:
    """Yield the hooks of accelerate that keep weights of a module."""
    hook: Any = getattr(module, "_hf_hook", None)
    for one in getattr(hook, "hooks", (hook,)):
        if getattr(one, "offload", False) and one.weights_map is not None:
            yield one

"""A model's weights, plain, quantised or offloaded, and the heads of one that was trained with one for each layer.

A standard checkpoint holds one head, that of the last layer. `exit_heads.safetensors` beside it
holds those of the layers before, each as `K.weight` [classes, D] and `K.bias`, and in its metadata
the path of the head they stand in for.
"""

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from layerscope.core import LayerscopeError

HEADS = "exit_heads.safetensors"


def input_device(module: nn.Module) -> torch.device:
    """Return the device that a model takes its inputs on; one whose weights are all offloaded names it in its hooks."""
    for parameter in module.parameters():
        if not parameter.is_meta:
            return parameter.device
    for child in module.modules():
        for hook in _hooks(child):
            return torch.device(hook.execution_device)
    return torch.device("cpu")


def parameters(module: nn.Module) -> int:
    """Return how many weights a model has, tied ones once."""
    return sum(weight.numel() for weight in module.parameters())


def dtype_of(module: nn.Module) -> str:
    """Return the name of the dtype of a model's weights, such as "float32"."""
    weight = next(module.parameters(), torch.empty(0))
    return dtype_name(weight.dtype)


def dtype_name(dtype: torch.dtype) -> str:
    """Return what a dtype is called, such as "float32"."""
    return str(dtype).removeprefix("torch.")


def is_offloaded(module: nn.Module) -> bool:
    """Return whether some weights are kept in CPU memory or in files, and brought only for their layer's forward."""
    return any(parameter.is_meta for parameter in module.parameters())


def is_parallel(module: nn.Module) -> bool:
    """Return whether each of several processes holds a part of the weights."""
    from torch.distributed.tensor import DTensor

    return any(isinstance(weight, DTensor) for weight in module.parameters())


def is_quantised(module: nn.Module) -> bool:
    """Return whether some weights are integers with scales: by transformers, torchao, quanto or torch itself."""
    if getattr(module, "hf_quantizer", None) or getattr(module, "is_quantized", False):
        return True
    for child in module.modules():
        if {"quantized", "quanto"}.intersection(type(child).__module__.split(".")):
            return True
    return any(map(is_traceable_wrapper_subclass, module.parameters()))


def numbers_of(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield every tensor of a model's state by name: offloaded ones one by one, quantised ones as what they hold."""
    for name, value in module.state_dict().items():
        if isinstance(value, Tensor) and value.is_meta:
            value = _fetched(module, name)
        yield from _plain(name, value)


def _fetched(module: nn.Module, name: str) -> Tensor:
    """Return an offloaded weight."""
    path, _, part = name.rpartition(".")
    for hook in _hooks(module.get_submodule(path)):
        if part in hook.weights_map:
            weight: Tensor = hook.weights_map[part]
            return weight
    raise LayerscopeError(
        f"the weight {name} is on the meta device: load the model with its weights"
    )


def _plain(name: str, value: object) -> Iterator[tuple[str, Tensor]]:
    """Yield a weight by its name, a packed or quantised one as the tensors that it holds."""
    if isinstance(value, (tuple, list)):  # packed weights and their bias
        for index, item in enumerate(value):
            yield from _plain(f"{name}.{index}", item)
    elif is_traceable_wrapper_subclass(value):
        inside, _ = value.__tensor_flatten__()
        for part in inside:
            yield from _plain(f"{name}.{part}", getattr(value, part))
    elif isinstance(value, Tensor):
        if value.is_quantized:
            value = value.dequantize()
        yield name, value


def _hooks(module: nn.Module) -> Iterator[Any]:
    """Yield the hooks of accelerate that keep weights of a module."""
    hook: Any = getattr(module, "_hf_hook", None)
    for one in getattr(hook, "hooks", (hook,)):
        if getattr(one, "offload", False) and one.weights_map is not None:
            yield one


@dataclass(frozen=True)
class ExitHeads:
    """The weights of each layer's own head, by layer, and the path of the head that they stand in for."""

    path: str
    heads: Mapping[int, Mapping[str, Tensor]]

    def save(self, folder: str | Path) -> None:
        """Write the heads beside a checkpoint; no file where there are none."""
        from safetensors.torch import save_file

        flat = {}
        for layer, head in self.heads.items():
            for name, part in head.items():
                flat[f"{layer}.{name}"] = part.detach().cpu().contiguous()
        if flat:
            save_file(flat, Path(folder) / HEADS, {"format": "pt", "head": self.path})

    def below(self, layer: int) -> "ExitHeads":
        """Return the heads of the layers before this one, which a model that ends here keeps."""
        heads = self.heads.items()
        return ExitHeads(self.path, {k: head for k, head in heads if k < layer})

    def modules(self, module: nn.Module) -> nn.ModuleDict:
        """Return each layer's own head under its number: the model's head, copied, with the weights of that layer."""
        heads = nn.ModuleDict()
        for layer, weights in self.heads.items():
            heads[str(layer)] = copy.deepcopy(module.get_submodule(self.path))
            heads[str(layer)].load_state_dict(weights)
        return heads

    @contextmanager
    def reading(self, module: nn.Module, layer: int) -> Iterator[None]:
        """Within, the head of a model, which may not be tied to another part, has the weights of this layer's own."""
        weights = self.heads.get(layer)
        if weights is None:
            yield
            return
        head = module.get_submodule(self.path)
        parameters = dict(head.named_parameters())
        every = module.named_parameters(remove_duplicate=False)
        if sum(weight is parameters["weight"] for _, weight in every) > 1:
            raise LayerscopeError(
                f"layer {layer} has a head of its own, and this model's head is tied to its token embeddings: a "
                "checkpoint that ends there cannot hold it"
            )
        before = {name: weight.data for name, weight in parameters.items()}
        try:
            for name, weight in parameters.items():
                weight.data = weights[name].to(weight.device, weight.dtype)
            yield
        finally:
            for name, weight in parameters.items():
                weight.data = before[name]


def exit_heads(folder: str | Path, module: nn.Module) -> ExitHeads | None:
    """Return the heads kept in the folder of a model, None where there are none; refuse such as are unlike its own."""
    from safetensors import SafetensorError, safe_open
    from safetensors.torch import load_file

    path = Path(folder).expanduser() / HEADS
    if not path.is_file():
        return None
    heads: dict[int, dict[str, Tensor]] = {}
    try:
        with safe_open(path, framework="pt") as file:
            head = file.metadata()["head"]
        for name, weight in load_file(path).items():
            layer, _, part = name.partition(".")
            heads.setdefault(int(layer), {})[part] = weight
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        raise LayerscopeError(
            f"{str(path)!r} cannot be read ({type(error).__name__}): copy it again"
        ) from error
    modules = dict(module.named_modules(remove_duplicate=False))
    weights_there = modules.get(head, nn.Module()).named_parameters()
    shapes = _shapes(dict(weights_there))
    for layer, weights in heads.items():
        if _shapes(weights) != shapes:
            raise LayerscopeError(
                f"{str(path)!r} holds a head for layer {layer} that is unlike this model's own: copy it from the "
                "folder that the model was trained into, or delete it"
            )
    return ExitHeads(head, heads)


def _shapes(weights: Mapping[str, Tensor]) -> dict[str, torch.Size]:
    """Return the shapes of weights by their names."""
    return {name: weight.shape for name, weight in weights.items()}


def heads_of(path: str, layers: Mapping[int, nn.Module]) -> ExitHeads:
    """Return the heads of layers as they are now, copied."""
    heads: dict[int, dict[str, Tensor]] = {}
    for layer, head in layers.items():
        weights = head.named_parameters()
        heads[layer] = {name: weight.detach().clone() for name, weight in weights}
    return ExitHeads(path, heads)

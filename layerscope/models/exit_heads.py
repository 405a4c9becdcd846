"""The heads of a model that was trained with one for each layer: a file beside its checkpoint.

A standard checkpoint holds one head, that of the last layer. `exit_heads.safetensors` holds those of the layers before
it, each as `K.weight` [classes, D] and `K.bias`, and in its metadata the path of the head they stand in for.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor, nn

from layerscope.core.errors import LayerscopeError

FILE = "exit_heads.safetensors"


@dataclass(frozen=True)
class ExitHeads:
    """The weights of each layer's own head, by layer, and the path of the head that they stand in for."""

    path: str
    heads: Mapping[int, Mapping[str, Tensor]]

    def save(self, folder: str | Path) -> None:
        """Write them beside a checkpoint; of no head there is no file."""
        from safetensors.torch import save_file

        weights = [(f"{layer}.{name}", part) for layer, head in self.heads.items() for name, part in head.items()]
        flat = {name: part.detach().cpu().contiguous() for name, part in weights}
        if flat:
            save_file(flat, Path(folder) / FILE, {"format": "pt", "head": self.path})

    def below(self, layer: int) -> ExitHeads:
        """Return the heads of the layers before this one, which a model that ends here keeps."""
        return ExitHeads(self.path, {own: head for own, head in self.heads.items() if own < layer})

    def modules(self, module: nn.Module) -> nn.ModuleDict:
        """Return each layer's own head under its number: the model's head, copied, with the weights of that layer."""
        heads = {str(layer): copy.deepcopy(module.get_submodule(self.path)) for layer in self.heads}
        for layer, own in self.heads.items():
            heads[str(layer)].load_state_dict(own)
        return nn.ModuleDict(heads)

    @contextmanager
    def reading(self, module: nn.Module, layer: int) -> Iterator[None]:
        """Within, the head of a model has the weights of this layer's own, where there is one.

        Raises `LayerscopeError` for a head that shares its weights with another part, such as the token embeddings.
        """
        own = self.heads.get(layer)
        if own is None:
            yield
            return
        head = module.get_submodule(self.path)
        mine = dict(head.named_parameters())
        if sum(weight is mine["weight"] for _, weight in module.named_parameters(remove_duplicate=False)) > 1:
            raise LayerscopeError(
                f"layer {layer} has a head of its own, and this model's head is tied to its token embeddings: a "
                "checkpoint that ends there cannot hold it"
            )
        before = {name: weight.data for name, weight in mine.items()}
        try:
            for name, weight in mine.items():
                weight.data = own[name].to(weight.device, weight.dtype)
            yield
        finally:
            for name, weight in mine.items():
                weight.data = before[name]


def exit_heads(folder: str | Path, module: nn.Module) -> ExitHeads | None:
    """Return the heads kept in the folder of a model; None where its one head reads every layer.

    Raises `LayerscopeError` for a file that is damaged, and for heads unlike the model's own.
    """
    from safetensors import SafetensorError, safe_open

    path = Path(folder).expanduser() / FILE
    if not path.is_file():
        return None
    heads: dict[int, dict[str, Tensor]] = {}
    try:
        with safe_open(path, framework="pt") as file:
            head = file.metadata()["head"]
            for name in file.keys():  # noqa: SIM118  the file is no mapping
                layer, _, own = name.partition(".")
                heads.setdefault(int(layer), {})[own] = file.get_tensor(name)
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        raise LayerscopeError(f"{str(path)!r} cannot be read ({type(error).__name__}): copy it again") from error
    shapes = {
        name.removeprefix(f"{head}."): weight.shape
        for name, weight in module.named_parameters(remove_duplicate=False)
        if name in (f"{head}.weight", f"{head}.bias")
    }
    for layer, weights in heads.items():
        if {name: weight.shape for name, weight in weights.items()} != shapes:
            raise LayerscopeError(
                f"{str(path)!r} holds a head for layer {layer} that is unlike this model's own: copy it from the "
                "folder that the model was trained into, or delete it"
            )
    return ExitHeads(head, heads)


def heads_of(path: str, layers: Mapping[int, nn.Module]) -> ExitHeads:
    """Return the heads of layers as they are now, copied."""
    weights = {layer: head.named_parameters() for layer, head in layers.items()}
    return ExitHeads(path, {layer: {name: one.detach().clone() for name, one in own} for layer, own in weights.items()})

"""What was found out about a model, kept with it for the next call, for as long as it stays what it is."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from itertools import chain
from typing import Any, TypeVar

from torch import Tensor, nn

NAME = "_layerscope_kept"
Found = TypeVar("Found")


class Kept(dict[Hashable, Any]):
    """Findings on one module in one state; copies and pickles of the module begin without."""

    def __init__(self, state: Hashable) -> None:
        super().__init__()
        self.state = state

    def __deepcopy__(self, memo: Any) -> dict[Hashable, Any]:
        """Return nothing: a copy is another module."""
        return {}

    def __reduce__(self) -> Any:
        """Return nothing, which loads without this package."""
        return dict, ()


def kept(module: nn.Module, key: Hashable, find: Callable[[], Found]) -> Found:
    """Return what was found under this key, found now where it is new or the module is not what it was.

    It lives in the module itself, so that both are freed together.
    """
    state = _state(module)
    there = module.__dict__.get(NAME)
    if not isinstance(there, Kept) or there.state != state:
        there = module.__dict__[NAME] = Kept(state)
    if key not in there:
        there[key] = find()
        there.state = _state(module)  # a probe may fill buffers
    found: Found = there[key]
    return found


def _state(module: nn.Module) -> Hashable:
    """Return what changes with the module's parts, its weights, and what its configs say."""
    tensors = chain(module.parameters(), module.buffers())
    told = (getattr(module, name, None) for name in ("config", "generation_config"))
    return (
        tuple(map(id, module.modules())),
        tuple(map(_version, tensors)),
        *(None if config is None else repr(config.to_dict()) for config in told),
    )


def _version(tensor: Tensor) -> Hashable:
    changes = 0 if tensor.is_inference() else tensor._version
    return id(tensor), tensor.data_ptr(), changes, tensor.dtype, tensor.device

"""Values as bytes: JSON, and arrays as numpy writes them. Reading them runs no code, whoever wrote them.

`("a", np.ones(2))` is `{"tuple": ["a", {"array": 0}]}` and one array: what JSON lacks is an object
of one member, whose name is the kind of value. A dataclass or a named tuple travels by its name,
which must be one of layerscope's.
"""

import io
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from importlib import import_module
from json import dumps, loads
from pathlib import Path
from typing import Any

from layerscope.core.errors import LayerscopeError

PLAIN = frozenset((type(None), bool, int, float, str))
OURS = re.compile(r"layerscope(\.[a-z]\w*)+")
"""Modules whose classes may travel; `layerscope.__main__`, which runs a command, is none of them."""
SIZE = 8
"""Bytes of a length: that of the whole message comes first, then that of the JSON."""


def packed(value: Any) -> bytes:
    """Return a value as bytes; raises `TypeError` for one that cannot travel.

    >>> import numpy as np
    >>> from layerscope.core.message_format import packed, unpacked
    >>> unpacked(packed({1: (None, {"a"}, np.arange(3))}))
    {1: (None, {'a'}, array([0, 1, 2]))}
    """
    import numpy as np

    arrays: list[Any] = []
    text = dumps(_Packing(arrays).tree(value)).encode()
    data = io.BytesIO()
    data.write(len(text).to_bytes(SIZE, "little"))
    data.write(text)
    for array in arrays:
        np.save(data, array, allow_pickle=False)
    return len(data.getbuffer()).to_bytes(SIZE, "little") + data.getvalue()


def unpacked(data: bytes) -> Any:
    """Return the value in bytes that `packed` made; raises `ValueError` for any others.

    Of several messages, one after another, it is the first: two processes may have written under
    one key.
    """
    import numpy as np

    try:
        data = data[SIZE : SIZE + int.from_bytes(data[:SIZE], "little")]
        start = SIZE + int.from_bytes(data[:SIZE], "little")
        tree = loads(data[SIZE:start])
        rest = io.BytesIO(data[start:])
        arrays = []
        while rest.tell() < len(rest.getbuffer()):
            arrays.append(np.load(rest, allow_pickle=False))
        return _Unpacking(arrays).value(tree)
    except Exception as error:  # what others wrote can be wrong in any way
        raise ValueError("these bytes are no message of layerscope") from error


def _column(column: Any) -> tuple[str, Any]:
    """Return the dtype of a frame's column, and its values in one of numpy's; what is missing in any other is None."""
    import pandas as pd

    if pd.api.types.is_extension_array_dtype(column.dtype):
        return str(column.dtype), column.astype(object).where(column.notna(), None).to_numpy()
    return str(column.dtype), column.to_numpy()


class _Packing:
    """What makes a tree for JSON of a value, and lays its arrays aside."""

    def __init__(self, arrays: list[Any]) -> None:
        self.arrays = arrays

    def tree(self, value: Any) -> Any:
        kind = type(value)
        if kind in PLAIN:
            return value
        if kind is list:
            return [self.tree(entry) for entry in value]
        if kind in (tuple, set, frozenset):
            return {kind.__name__: [self.tree(entry) for entry in value]}
        if kind is dict:
            return {"dict": [[self.tree(key), self.tree(entry)] for key, entry in value.items()]}
        if isinstance(value, Path):
            return {"path": str(value)}
        if isinstance(value, Exception):
            return {"error": [isinstance(value, LayerscopeError), str(value)]}
        if OURS.fullmatch(kind.__module__) and (is_dataclass(value) or isinstance(value, tuple)):
            parts = list(value) if isinstance(value, tuple) else vars(value)
            return {"object": [kind.__module__, kind.__name__, self.tree(parts)]}
        return self._of_library(value)

    def _of_library(self, value: Any) -> Any:
        """Return the tree of what numpy, pandas or torch made."""
        import numpy as np
        import pandas as pd

        if isinstance(value, np.ndarray) and value.dtype == object:
            return {"texts": [self.tree(list(value.shape)), self.tree(value.ravel().tolist())]}
        if isinstance(value, (np.ndarray, np.generic)):
            return {
                "array" if isinstance(value, np.ndarray) else "number": self._laid_aside(
                    np.asarray(value)
                )
            }
        if isinstance(value, pd.DataFrame):
            columns = [(name, *_column(column)) for name, column in value.items()]
            return {"frame": self.tree([value.index.to_numpy(), columns])}
        torch: Any = sys.modules.get("torch")
        if torch is not None and isinstance(value, torch.Tensor):
            dtype = str(value.dtype).removeprefix("torch.")
            words = value.detach().cpu()
            if dtype == "bfloat16":  # which numpy has not
                words = words.view(torch.int16)
            return {"tensor": [dtype, self._laid_aside(words.numpy())]}
        raise TypeError(f"a {type(value).__name__} cannot be sent from process to process")

    def _laid_aside(self, array: Any) -> int:
        self.arrays.append(array)
        return len(self.arrays) - 1


class _Unpacking:
    """What makes a value of a tree and its arrays."""

    def __init__(self, arrays: list[Any]) -> None:
        self.arrays = arrays
        self.kinds: Mapping[str, Callable[[Any], Any]] = {
            "tuple": lambda entries: tuple(self.value(entries)),
            "set": lambda entries: set(self.value(entries)),
            "frozenset": lambda entries: frozenset(self.value(entries)),
            "dict": lambda pairs: {self.value(key): self.value(entry) for key, entry in pairs},
            "path": Path,
            "error": lambda parts: (
                LayerscopeError(parts[1]) if parts[0] else RuntimeError(parts[1])
            ),
            "object": lambda parts: self._object(*parts),
            "array": self.arrays.__getitem__,
            "number": lambda number: self.arrays[number][()],
            "texts": lambda parts: self._texts(*parts),
            "frame": lambda parts: self._frame(*self.value(parts)),
            "tensor": lambda parts: self._tensor(*parts),
        }

    def value(self, tree: Any) -> Any:
        if isinstance(tree, list):
            return [self.value(entry) for entry in tree]
        if isinstance(tree, dict):
            ((kind, parts),) = tree.items()
            return self.kinds[kind](parts)
        return tree

    def _object(self, module: str, name: str, tree: Any) -> Any:
        if not OURS.fullmatch(module):
            raise ValueError(f"{module} is none of layerscope's modules")
        kind, parts = getattr(import_module(module), name), self.value(tree)
        if not isinstance(kind, type) or kind.__module__ != module:
            raise ValueError(f"{module}.{name} is no class of layerscope")
        if issubclass(kind, tuple):
            return tuple.__new__(kind, parts)
        if not is_dataclass(kind):
            raise ValueError(f"{module}.{name} is no dataclass")
        made = object.__new__(kind)
        vars(made).update(parts)  # as it was, frozen or not: what a constructor does has been done
        return made

    def _texts(self, shape: Any, entries: Any) -> Any:
        import numpy as np

        array = np.empty(len(entries), dtype=object)
        array[:] = self.value(entries)
        return array.reshape(shape)

    def _frame(self, index: Any, columns: Any) -> Any:
        import pandas as pd

        held = {
            name: pd.Series(values, dtype=dtype, index=index) for name, dtype, values in columns
        }
        return pd.DataFrame(held, index=index)

    def _tensor(self, dtype: str, number: int) -> Any:
        import torch

        return torch.from_numpy(self.arrays[number]).view(getattr(torch, dtype))

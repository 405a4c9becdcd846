"""Values as bytes: JSON, and arrays as numpy writes them. Reading them runs no code, whoever wrote them.

`("a", np.ones(2))` is `{"tuple": ["a", {"array": 0}]}` and one array: what JSON lacks is an object
of one member, whose name is the kind of value, and whose value is made of simpler ones. A dataclass
or a named tuple travels by its name, which must be one of layerscope's.
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
    text = dumps(_tree(value, arrays)).encode()
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
        return _value(tree, arrays)
    except Exception as error:  # what others wrote can be wrong in any way
        raise ValueError("these bytes are no message of layerscope") from error


def _tree(value: Any, arrays: list[Any]) -> Any:
    """Return a value as a tree for JSON, its arrays laid aside."""
    import numpy as np

    if type(value) in PLAIN:
        return value
    if type(value) is list:
        return [_tree(entry, arrays) for entry in value]
    if isinstance(value, np.ndarray) and value.dtype != object:
        arrays.append(value)
        return {"array": len(arrays) - 1}
    kind, parts = _simpler(value)
    return {kind: _tree(parts, arrays)}


def _value(tree: Any, arrays: list[Any]) -> Any:
    """Return the value of a tree."""
    if isinstance(tree, list):
        return [_value(entry, arrays) for entry in tree]
    if not isinstance(tree, dict):
        return tree
    ((kind, parts),) = tree.items()
    return arrays[parts] if kind == "array" else MADE[kind](_value(parts, arrays))


def _simpler(value: Any) -> tuple[str, Any]:
    """Return the kind of a value, and the simpler value of which `MADE` makes it."""
    kind = type(value)
    if kind in (tuple, set, frozenset):
        return kind.__name__, list(value)
    if kind is dict:
        return "dict", [[key, entry] for key, entry in value.items()]
    if isinstance(value, Path):
        return "path", str(value)
    if isinstance(value, Exception):
        return "error", [isinstance(value, LayerscopeError), str(value)]
    if OURS.fullmatch(kind.__module__) and (
        is_dataclass(value) or isinstance(value, tuple)
    ):
        parts = list(value) if isinstance(value, tuple) else vars(value)
        return "object", [kind.__module__, kind.__name__, parts]
    return _simpler_of_library(value)


def _simpler_of_library(value: Any) -> tuple[str, Any]:
    """Return the same of what numpy, pandas or torch made."""
    import numpy as np
    import pandas as pd

    if isinstance(value, np.ndarray):  # of texts
        return "texts", [list(value.shape), value.ravel().tolist()]
    if isinstance(value, np.generic):
        return "number", np.asarray(value)
    if isinstance(value, pd.DataFrame):
        columns = [
            [name, str(column.dtype), _column(column)] for name, column in value.items()
        ]
        return "frame", [value.index.to_numpy(), columns]
    torch: Any = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        dtype = str(value.dtype).removeprefix("torch.")
        words = value.detach().cpu()
        if dtype == "bfloat16":  # which numpy has not
            words = words.view(torch.int16)
        return "tensor", [dtype, words.numpy()]
    raise TypeError(f"a {type(value).__name__} cannot be sent from process to process")


def _column(column: Any) -> Any:
    """Return the values of a frame's column as an array; what is missing in a dtype of pandas' own is None."""
    import pandas as pd

    if pd.api.types.is_extension_array_dtype(column.dtype):
        column = column.astype(object).where(column.notna(), None)
    return column.to_numpy()


def _error(parts: Any) -> Exception:
    is_ours, line = parts
    return LayerscopeError(line) if is_ours else RuntimeError(line)


def _object(parts: Any) -> Any:
    """Return a dataclass or a named tuple of layerscope's as it was; no constructor runs."""
    module, name, values = parts
    if not OURS.fullmatch(module):
        raise ValueError(f"{module} is none of layerscope's modules")
    kind = getattr(import_module(module), name)
    if not isinstance(kind, type) or kind.__module__ != module:
        raise ValueError(f"{module}.{name} is no class of layerscope")
    if issubclass(kind, tuple):
        return tuple.__new__(kind, values)
    if not is_dataclass(kind):
        raise ValueError(f"{module}.{name} is no dataclass")
    made = object.__new__(kind)
    vars(made).update(values)
    return made


def _texts(parts: Any) -> Any:
    import numpy as np

    shape, entries = parts
    array = np.empty(len(entries), dtype=object)
    array[:] = entries
    return array.reshape(shape)


def _frame(parts: Any) -> Any:
    import pandas as pd

    index, columns = parts
    held = {
        name: pd.Series(values, dtype=dtype, index=index)
        for name, dtype, values in columns
    }
    return pd.DataFrame(held, index=index)


def _tensor(parts: Any) -> Any:
    import torch

    dtype, words = parts
    return torch.from_numpy(words).view(getattr(torch, dtype))


MADE: Mapping[str, Callable[[Any], Any]] = {
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
    "dict": dict,
    "path": Path,
    "error": _error,
    "object": _object,
    "number": lambda array: array[()],
    "texts": _texts,
    "frame": _frame,
    "tensor": _tensor,
}
"""By kind, what makes a value of the simpler one."""

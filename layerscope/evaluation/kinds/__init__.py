"""The kinds of tasks on data of your own, one file each: `knn_probe.py` holds the kind `knn-probe`.

A file holds one record, `KIND`: a `TableKind`, which mteb judges, a `ProbeKind`, which a function of
states and labels judges, or anything else with `name`, what it `reads`, what its `score` is, and
`open(data, draw)`, which returns tasks of mteb or `ProbeTask`s. Nothing else is to be registered:
help, errors and documentation take the names from the files.
"""

import importlib
from pkgutil import iter_modules
from typing import Any

from layerscope.core.errors import LayerscopeError, choices


def kind_names() -> list[str]:
    """Return the names of all kinds; no kind is imported for that."""
    return sorted(file.name.replace("_", "-") for file in iter_modules(__path__))


def kind_of(name: Any) -> Any:
    """Return the record of a kind; raises `LayerscopeError` for one that does not exist."""
    if name not in kind_names():
        raise LayerscopeError(
            f"task kind {name!r} does not exist{choices(str(name), kind_names())}"
        )
    module = importlib.import_module(f"{__name__}.{name.replace('-', '_')}")
    return module.KIND

"""The kinds of tasks on data of your own, one file each: `knn_probe.py` holds the kind `knn-probe`.

A file holds one record, `KIND`: a `TableKind`, which mteb judges, a `ProbeKind`, which a function of
states and labels judges, or anything else that is a `TaskKind`. Nothing else is to be registered:
help, errors and documentation take the names from the files.
"""

import importlib
from pkgutil import iter_modules
from typing import Any, Protocol

from layerscope.core.errors import LayerscopeError, choices


class TaskKind(Protocol):
    """A kind of task: its name, what data it reads and what its score is, in words for the documentation."""

    @property
    def name(self) -> str:
        """What stands before the data in `KIND:DATA`."""

    @property
    def reads(self) -> str:
        """What its data are."""

    @property
    def score(self) -> str:
        """What its score is."""

    def open(self, data: Any, draw: Any) -> list[Any]:
        """Return the tasks of these data (tasks of mteb or `ProbeTask`), drawn as `draw` says."""


def kind_names() -> list[str]:
    """Return the names of all kinds; no kind is imported for that."""
    return sorted(file.name.replace("_", "-") for file in iter_modules(__path__))


def kind_of(name: Any) -> TaskKind:
    """Return the record of a kind; raises `LayerscopeError` for one that does not exist."""
    if name not in kind_names():
        raise LayerscopeError(
            f"task kind {name!r} does not exist{choices(str(name), kind_names())}"
        )
    kind: TaskKind = importlib.import_module(
        f"{__name__}.{name.replace('-', '_')}"
    ).KIND
    return kind

"""What is known of a metric: how a run computes it, how it is read, where it comes from.

A metric is one file: a function that anybody may call, with its source in its docstring, and a record
that says how a run takes it and what a page says of it. The record is all that the rest of the house
needs; no list names the metrics there are.
"""

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass
from importlib import import_module
from inspect import getdoc
from pathlib import Path
from pkgutil import iter_modules
from typing import Any, ClassVar, Literal

SOURCE = re.compile(r"^Source: (.+?)\.?(?:\n\n|\Z)", re.M | re.S)
"""Where a docstring says where a metric comes from."""
Needs = Literal[
    "tokens", "pooled", "views", "path", "pairs", "lens", "labels", "forward"
]


class How:
    """How a run computes a metric.

    There is one kind for each of what metrics are computed from.
    """

    needs: ClassVar[Needs] = "pooled"

    def lack(self, count: int, width: int) -> str | None:
        """Return what `count` samples of `width` features lack for a value, or None."""
        return None

    def streams(self, options: Any) -> bool:
        """Return whether sums over chunks of samples give what the options ask for, to rounding.

        They give the means of what the pass measures of each sample.
        """
        return self.needs in ("tokens", "forward")


class FromForward(How):
    """A metric that takes more of a model than its states: attention weights, or forwards that lack a part.

    It is measured only where it is named.
    """

    needs = "forward"


@dataclass(frozen=True)
class Metric:
    """What a metric is called, how it is computed, and how to read it.

    The registry finds the record in the file of the metric's `function`, whose name and source it
    takes over unless it gives its own; the title is the name in words unless it gives another.
    """

    function: Callable[..., Any] | None = None
    how: How = How()
    _: KW_ONLY
    name: str = ""
    title: str = ""
    unit: str = ""
    reading: str = ""
    """A few words for a terminal: unit, and what an end of the scale means."""
    formula: str = ""
    meaning: str = ""
    """How it is computed, and its range."""
    direction: str = ""
    """Which end means what: a description or a hypothesis, never a verdict."""
    source: str = ""
    low: bool = False
    """What stands out is the minimum instead of the maximum: a convention, not a verdict."""
    log: bool = False
    """Only a logarithmic axis shows its shape."""
    curve: bool = True
    """Drawn by layer; else it is in the table alone: one number for all layers, a count, a setting."""
    setting: bool = False
    """It says how another metric was fitted, and nothing of the layers: it is not compared."""
    beside: tuple[str, ...] = ()
    """The metrics and options that bring it along: it cannot be chosen by itself."""

    def __post_init__(self) -> None:
        name = self.name
        source = self.source
        if self.function is not None:
            name = name or self.function.__name__
            documented = SOURCE.search(getdoc(self.function) or "")
            if documented and not source:
                source = " ".join(documented[1].split())
        title = self.title or name.replace("_", " ")
        values = {"name": name, "source": source, "title": title}
        for field, value in values.items():
            object.__setattr__(self, field, value)

    @property
    def scale(self) -> float:
        """The factor from its values to the unit they are shown in."""
        return 100.0 if self.unit == "%" else 1.0

    @property
    def needs(self) -> Needs:
        """What it is computed from."""
        return self.how.needs


def records(package: str) -> Iterator[Metric]:
    """Yield the records in the files of a package."""
    for file in iter_modules(import_module(package).__path__, f"{package}."):
        for value in vars(import_module(file.name)).values():
            if isinstance(value, Metric):
                yield value


def public_names(package: str) -> dict[str, Any]:
    """Return what a package hands on: all that its stub imports from its files."""
    stub = Path(str(import_module(package).__file__)).with_suffix(".pyi")
    names: dict[str, Any] = {}
    for line in ast.parse(stub.read_text("utf-8")).body:
        if isinstance(line, ast.ImportFrom):
            module = import_module(f"{package}.{line.module}")
            names |= {alias.name: getattr(module, alias.name) for alias in line.names}
    return names

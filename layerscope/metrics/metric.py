"""What is known of a metric: how a run computes it, how it is read, where it comes from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pkgutil import iter_modules
from typing import ClassVar, Literal

Needs = Literal["tokens", "pooled", "views", "pairs", "lens", "labels"]


class How:
    """How a run computes a metric; there is one kind for each of what metrics are computed from."""

    needs: ClassVar[Needs] = "pooled"

    def lack(self, count: int, width: int) -> str | None:
        """Return what `count` samples of `width` features lack for a value, or None."""
        return None


@dataclass(frozen=True, kw_only=True)
class Metric:
    """What a metric is called, how it is computed, and how to read it.

    The record of a metric stands in the file of its function, where the registry finds it.
    """

    name: str
    how: How = How()
    title: str
    unit: str = ""
    reading: str = ""
    """A few words for a terminal: unit, and what an end of the scale means."""
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
    """Drawn by layer; else it stands in the table alone: one number for all layers, a count, a setting."""
    seven: bool = False
    """One of the seven quality measures of Layer by Layer."""
    default: bool = True
    """Measured where nobody chooses; the others are asked for by name, or with "all"."""
    beside: tuple[str, ...] = ()
    """The metrics and options that bring it along: it cannot be chosen by itself."""
    order: int = 99
    """Where it stands among the metrics of its kind; equal ones stand in the order of their files."""

    @property
    def needs(self) -> Needs:
        """What it is computed from."""
        return self.how.needs


def records(package: str) -> Iterator[Metric]:
    """Yield the records in the files of a package."""
    for found in iter_modules(import_module(package).__path__, f"{package}."):
        yield from (value for value in vars(import_module(found.name)).values() if isinstance(value, Metric))


SKEAN = "Skean et al. 2025, Layer by Layer"
JIANG = "Jiang, Zhou, Zhu 2025, Tracing Representation Progression"
OORD = "van den Oord et al. 2018, Representation Learning with Contrastive Predictive Coding"
SUN = "Sun et al. 2024, Massive Activations in Large Language Models"

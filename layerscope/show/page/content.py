"""What a page is made of, between documents and HTML: sections of figures and tables, plain values for the scripts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from layerscope.show.document import Document, Sentences, TokenGrid
from layerscope.show.plots import Meaning

Json = dict[str, Any]
SHORT = 5
"""Characters of the names of layers and steps, at most."""
T = TypeVar("T")


@dataclass(frozen=True)
class Named:
    """A document, its name among the others (by default what it is of), and the colour that it shares with another."""

    document: Document
    name: str = ""
    look: int | None = None


@dataclass(frozen=True)
class Member:
    """A document on the page: what it is called among the others, and the colour of it by its number."""

    number: int
    name: str
    document: Document
    look: int

    @property
    def findings(self) -> list[str]:
        """What belongs to the answer, and what stands out."""
        d = self.document
        return [*d.reasons, *(text for part in d.parts if isinstance(part, Sentences) for text in part.texts)]


@dataclass(frozen=True)
class Figure:
    """One card of the page: what is written around its plots, and in `drawn` what the script draws."""

    title: str
    kind: str
    summary: str
    drawn: Json
    about: Meaning
    unit: str = ""
    group: str = ""

    @property
    def plots(self) -> int:
        """How many plots stand beside each other in it."""
        return len(self.drawn["places"])

    @property
    def wide(self) -> bool:
        """Whether it takes a row of its own: several plots, or a map whose rows have long names."""
        rows = self.drawn["choices"][0].get("rows", ()) if self.kind == "map" else ()
        return self.plots > 1 or any(len(name) > SHORT for name in rows)

    @property
    def choices(self) -> int:
        """Among how many results and poolings each of its plots chooses; 1 is no choice."""
        return 1 if self.overlaid else len(self.drawn["choices"])

    @property
    def overlaid(self) -> bool:
        """Whether all results lie over each other in one plot."""
        return bool(self.drawn.get("overlaid"))

    @property
    def file(self) -> str:
        """Name its downloads begin with."""
        return re.sub(r"[^\w.-]+", "-", self.title.lower()).strip("-.")[:80]


@dataclass(frozen=True)
class Table:
    """One table of the page: `head` names its first column, cells stand under `columns`."""

    id: str
    title: str
    lead: str
    head: str
    columns: list[Json]
    rows: list[Json]


@dataclass(frozen=True)
class LongTable:
    """A long frame by columns, texts as numbers of a list of texts; `owners` says whose each row is."""

    id: str
    title: str
    lead: str
    columns: list[Json]
    owners: list[int]
    choose: tuple[str, ...]


@dataclass(frozen=True)
class Group:
    """Figures that are folded together where a section has many; rows of cards."""

    title: str
    rows: tuple[tuple[Figure, ...], ...]

    @property
    def plots(self) -> int:
        """How many figures it has."""
        return sum(map(len, self.rows))


@dataclass(frozen=True)
class Section:
    """Figures and tables under one heading, with a sentence on how to read them, and what their marks stand for."""

    id: str
    title: str
    lead: str
    groups: tuple[Group, ...]
    tables: tuple[Table | LongTable, ...] = ()
    legend: tuple[str, ...] = ()
    grids: tuple[tuple[Member, TokenGrid], ...] = ()

    @property
    def figures(self) -> tuple[Figure, ...]:
        """All figures in the order of the page."""
        return tuple(figure for group in self.groups for row in group.rows for figure in row)


def in_order(lists: Iterable[Sequence[T]]) -> list[T]:
    """Return what is in any list once, what is new in a list after what stands before it there, or before the next."""
    found: list[T] = []
    for entries in lists:
        at = next((found.index(entry) for entry in entries if entry in found), len(found))
        for entry in entries:
            if entry not in found:
                found.insert(at, entry)
            at = found.index(entry) + 1
    return found

"""The results of recipes: a board of verdicts, each with its evidence."""

import json
import shlex
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import pandas as pd

from layerscope.core import aside, jsonable, write_json
from layerscope.show import (
    Document,
    Facts,
    Section,
    Sentences,
    Shown,
    Table,
    TokenGrid,
    write_page,
)
from layerscope_papers.assets import Assets
from layerscope_papers.drawing import file_name
from layerscope_papers.options import YOURS
from layerscope_papers.recipe import Evidence, Recipe, written
from layerscope_papers.tables import (
    by_paper,
    claims,
    compared,
    counted,
    in_sentences,
    in_words,
    numbers,
    said,
)
from layerscope_papers.verdicts import Verdict, Word, decide, overall

NUMBERS = (
    "quantity",
    "printed",
    "where",
    "ours",
    "low",
    "high",
    "comparable",
    "why_not",
)


@dataclass(frozen=True, eq=False)
class Reproduction(Shown):
    """One recipe at one scale: a verdict on each claim, what it rests on, and what it was made with.

    Attributes:
        recipe: claims and settings, fixed before the result.
        scale: name of the scale.
        verdicts: one for each claim.
        evidence: what the verdicts rest on.
        commands: what makes the same again.
        versions: of the packages that it was made with.

    """

    recipe: Recipe
    scale: str
    verdicts: tuple[Verdict, ...]
    evidence: Evidence
    commands: tuple[str, ...]
    versions: dict[str, Any]

    def __repr__(self) -> str:
        return (
            f"Reproduction({self.recipe.name!r}, scale={self.scale!r}: {self.summary})"
        )

    @property
    def word(self) -> Word:
        """The verdict on the whole recipe."""
        return overall(self.verdicts)

    @property
    def summary(self) -> str:
        """The verdicts in a few words, as "2 of 3 claims held, 1 did not hold"."""
        if len(self.verdicts) == 1:
            return f"the claim {said(self.verdicts[0].word)}"
        return counted(verdict.word for verdict in self.verdicts)

    def named(self) -> list[tuple[str, Verdict]]:
        """Return each verdict with the recipe's name."""
        return [(self.recipe.name, verdict) for verdict in self.verdicts]

    def numbers(self) -> pd.DataFrame:
        """Return ours beside what is printed: a row for each quantity, with its source and whether they compare."""
        printed = {entry.quantity: entry for entry in self.recipe.printed}
        ours = {number.quantity: number for number in self.evidence.numbers}
        rows = [
            compared(quantity, ours.get(quantity), printed.get(quantity))
            for quantity in ours | printed
        ]
        return pd.DataFrame(rows, columns=list(NUMBERS))

    @property
    def notes(self) -> list[str]:
        """How data or measures differ from the paper's, and what the judge says of its evidence."""
        note = [f"{self.recipe.note}."] if self.recipe.note else []
        return note + list(self.evidence.notes)

    def document(self) -> Document:
        """Return the verdict, each claim with its interval and threshold, and ours beside the printed numbers."""
        verdicts = claims(self.named())
        table = numbers(self.numbers())
        remarks = (in_sentences(self.named()), *_notes(self))
        return Document(
            answer=f"{self.recipe.name}: {self.summary}.",
            reasons=(f"{self.recipe.title}.",),
            title=(f"{self.recipe.name}, {_where(self)}",),
            facts=(self.recipe.paper,),
            parts=(verdicts, *filter(_has_rows, [table]), *remarks),
            lead=(verdicts, table),
            sections=(_section(self),),
            details=(
                Facts(
                    (
                        ("recipe", self.recipe.digest),
                        *((k, str(v)) for k, v in self.versions.items()),
                    ),
                    "made with",
                ),
            ),
            kind="recipes",
        )

    def as_dict(self) -> dict[str, Any]:
        """Return verdicts with statistic, interval and threshold, numbers, commands and versions, for JSON."""
        result: dict[str, Any] = jsonable(
            {
                "recipe": self.recipe.name,
                "title": self.recipe.title,
                "paper": self.recipe.paper,
                "scale": self.scale,
                "verdict": self.word,
                "fixed": self.recipe.digest,
                "settings": written(self.recipe.scales[self.scale]),
                "claims": list(map(_claim, self.verdicts)),
                "numbers": self.numbers().to_dict("records"),
                "notes": self.notes,
                "commands": list(self.commands),
                "versions": self.versions,
            }
        )
        return result

    def save(self, folder: Path) -> Path:
        """Write result.json, numbers.csv and the pictures into a folder, and return it."""
        from layerscope.show import draw

        folder.mkdir(parents=True, exist_ok=True)
        aside(
            folder / "numbers.csv",
            lambda part: self.numbers().to_csv(part, index=False),
        )
        document = self.document()
        # a figure stands alone in a paper
        for plot in self.evidence.plots:
            name = "layers-and-tokens"
            if not isinstance(plot, TokenGrid):
                name = plot.name
            section = Section(name, "Layers and tokens", "", (plot,))
            draw([(self.recipe.name, replace(document, sections=(section,)))], folder)
        write_json(folder / "result.json", self.as_dict())
        return folder


@dataclass(frozen=True, eq=False)
class Board(Shown):
    """What `reproduce` returns: recipes with their verdicts, and those that do not run at this scale, and why.

    Attributes:
        scale: name of the scale.
        reproductions: one for each recipe, in the order of the papers.
        lacking: names of recipes that do not run, each with what it lacks.
        folder: where results, figures and the page are.

    >>> from layerscope_papers import reproduce
    >>> board = reproduce("T-tab1", out="papers", progress=False)
    >>> board["T-tab1"].word
    'did not hold'

    """

    scale: str
    reproductions: tuple[Reproduction, ...]
    lacking: tuple[tuple[str, str], ...] = ()
    folder: Path | None = None

    def __repr__(self) -> str:
        return f"Board(scale={self.scale!r}: {self.document().answer.rstrip('.')})"

    def named(self) -> list[tuple[str, Verdict]]:
        """Return all verdicts, each with its recipe's name."""
        return [
            named
            for reproduction in self.reproductions
            for named in reproduction.named()
        ]

    def __getitem__(self, name: str) -> Reproduction:
        return next(
            reproduction
            for reproduction in self.reproductions
            if reproduction.recipe.name == name
        )

    def document(self) -> Document:
        """Return how many claims held, each claim with its verdict, and for a page the evidence."""
        if len(self.reproductions) == 1 and not self.lacking:
            return self.reproductions[0].document()
        wanting: dict[str, list[str]] = {}
        for name, what in self.lacking:
            wanting.setdefault(what, []).append(name)
        lines = (
            f"Not run at this scale, which lacks {what}: {', '.join(names)}."
            for what, names in wanting.items()
        )
        lacking = Sentences("Not run", tuple(lines))
        verdicts = claims(self.named())
        others = by_paper(self.named(), but="held")
        overview = tuple(map(_of_paper, groupby(self.reproductions, _paper)))
        return Document(
            answer=f"{counted(verdict.word for _, verdict in self.named())}.",
            title=(f"The papers' claims, {_where(*self.reproductions)}",),
            parts=(others, verdicts, *([lacking] if self.lacking else [])),
            lead=(by_paper(self.named()),),
            sections=(*overview, *map(_section, self.reproductions)),
            details=(lacking,) if self.lacking else (),
            kind="recipes",
        )

    def as_dict(self) -> dict[str, Any]:
        """Return every result as JSON can hold it."""
        results = [entry.as_dict() for entry in self.reproductions]
        return {"scale": self.scale, "recipes": results, "lacking": dict(self.lacking)}

    def report(self, path: str | Path | None = None) -> Path:
        """Write the board as one HTML page that opens offline, by default `report.html` here."""

        def text() -> str:
            from layerscope.show import render

            return render([self.document()])

        return write_page("report.html" if path is None else path, text)


def _where(*reproductions: Reproduction) -> str:
    """Return what claims were judged on, in words."""
    scale = reproductions[0].scale
    if scale != YOURS:
        return f"scale {scale}"
    settings = reproductions[0].recipe.scales[scale]
    return f"{settings.hub} on {settings.data}"


def judged_by(folder: Path) -> str | None:
    """Return the digest of the recipe that the result in a folder was judged by, None where there is no result."""
    try:
        result: dict[str, str] = json.loads((folder / "result.json").read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return result.get("fixed")


def judged(recipe: Recipe, assets: Assets, scale: str) -> Reproduction:
    """Return a recipe's verdicts on what its assets hold."""
    from layerscope.core import versions

    evidence = recipe.judge(assets)
    verdicts = tuple(
        decide(
            claim,
            evidence.intervals[claim.name],
            evidence.inapplicable.get(claim.name, ""),
        )
        for claim in recipe.claims
    )
    settings = recipe.scales[scale]
    where = ["--scale", scale]
    if assets.data is not None:
        where += ["--data-dir", str(assets.data)]
    if scale == YOURS:
        where = ["--model", settings.hub, "--data", settings.data]
    command = shlex.join(["layerscope", "reproduce", recipe.name, *where])
    return Reproduction(recipe, scale, verdicts, evidence, (command,), versions())


LEAD = (
    "A claim held where the whole 95 % interval of its statistic lies beyond the threshold, which was fixed before any "
    "result; it is not decided where the interval straddles the threshold."
)


def _claim(verdict: Verdict) -> dict[str, Any]:
    """Return a claim with its statistic, interval and verdict."""
    decided = {"verdict": verdict.word, "would_decide": verdict.wants}
    return vars(verdict.claim) | vars(verdict.interval) | decided


def _notes(reproduction: Reproduction) -> list[Sentences]:
    return [Sentences("Notes", tuple(reproduction.notes))] if reproduction.notes else []


def _has_rows(table: Table) -> bool:
    return bool(table.rows)


def _paper(reproduction: Reproduction) -> str:
    return reproduction.recipe.paper


def _of_paper(group: tuple[str, Iterable[Reproduction]]) -> Section:
    """Return the verdicts on the claims of a paper."""
    paper, recipes = group
    named: list[tuple[str, Verdict]] = []
    for reproduction in recipes:
        named += reproduction.named()
    return Section(file_name(paper), paper, LEAD, (in_words(named),))


def _section(reproduction: Reproduction) -> Section:
    name = reproduction.recipe.name.lower()
    tables = filter(
        _has_rows, (in_words(reproduction.named()), numbers(reproduction.numbers()))
    )
    named = (replace(table, name=f"{name}-{table.name}") for table in tables)
    return Section(
        name,
        f"{reproduction.recipe.name} · {reproduction.summary}",
        f"{reproduction.recipe.title} ({reproduction.recipe.paper}).",
        (*named, *reproduction.evidence.plots),
        tuple(reproduction.notes),
    )

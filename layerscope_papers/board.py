"""The results of recipes: a board of verdicts, each with its evidence."""

import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace
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
from layerscope_papers.options import YOURS
from layerscope_papers.recipe import Evidence, Recipe
from layerscope_papers.tables import (
    claims,
    compared,
    counted,
    in_sentences,
    measured,
    numbers,
    over,
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
    """One recipe at one scale: a verdict on each claim, what it rests on, and what it was made with."""

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
        found = [
            compared(n.quantity, n.value, n.low, n.high, printed.get(n.quantity))
            for n in self.evidence.numbers
        ]
        known = {entry["quantity"] for entry in found}
        found += [
            compared(name, None, None, None, entry)
            for name, entry in printed.items()
            if name not in known
        ]
        return pd.DataFrame(found, columns=list(NUMBERS))

    def document(self) -> Document:
        """Return the verdict, each claim with its interval and threshold, and ours beside the printed numbers."""
        verdicts, table = claims(self.named()), numbers(self.numbers())
        return Document(
            answer=f"{self.recipe.name}: {self.summary}.",
            reasons=(f"{self.recipe.title}.",),
            title=(f"{self.recipe.name}, {_where(self)}",),
            facts=(self.recipe.paper,),
            parts=(verdicts, *([table] if table.rows else []), *_remarks(self)),
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
        found: dict[str, Any] = jsonable(
            {
                "recipe": self.recipe.name,
                "title": self.recipe.title,
                "paper": self.recipe.paper,
                "scale": self.scale,
                "verdict": self.word,
                "fixed": self.recipe.digest,
                "settings": str(self.recipe.scales[self.scale] or ""),
                "claims": [
                    {
                        **{
                            name: getattr(v.claim, name)
                            for name in ("name", "sentence", "statistic", "over")
                        },
                        "value": v.interval.value,
                        "low": v.interval.low,
                        "high": v.interval.high,
                        "n": v.interval.n,
                        "direction": v.claim.direction,
                        "threshold": v.claim.threshold,
                        "verdict": v.word,
                        "would_decide": v.wants,
                    }
                    for v in self.verdicts
                ],
                "numbers": self.numbers().to_dict("records"),
                "notes": [self.recipe.note, *self.evidence.notes]
                if self.recipe.note
                else list(self.evidence.notes),
                "commands": list(self.commands),
                "versions": self.versions,
            }
        )
        return found

    def save(self, folder: Path) -> Path:
        """Write result.json, numbers.csv and the pictures into a folder, and return it."""
        from layerscope.show import draw

        folder.mkdir(parents=True, exist_ok=True)
        aside(
            folder / "numbers.csv",
            lambda part: self.numbers().to_csv(part, index=False),
        )
        document = self.document()
        for plot in (
            self.evidence.plots
        ):  # each under its own title, as a figure stands alone in a paper
            name, title = "layers-and-tokens", ""
            if not isinstance(plot, TokenGrid):
                name, title = plot.name, f": {plot.title}"
            alone = replace(
                document, sections=(Section(name, "Layers and tokens", "", (plot,)),)
            )
            draw([(f"{self.recipe.name}{title}", alone)], folder)
        write_json(folder / "result.json", self.as_dict())
        return folder


@dataclass(frozen=True, eq=False)
class Board(Shown):
    """What `reproduce` returns: recipes with their verdicts, and those that do not run at this scale, and why.

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
        return [named for found in self.reproductions for named in found.named()]

    def __getitem__(self, name: str) -> Reproduction:
        return next(found for found in self.reproductions if found.recipe.name == name)

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
        lacking, verdicts = Sentences("Not run", tuple(lines)), claims(self.named())
        sentences = in_sentences(self.named())
        overview = Section(
            "board", "Verdicts", LEAD, (claims(self.named(), in_words=True),)
        )
        return Document(
            answer=f"{counted(verdict.word for _, verdict in self.named())}.",
            title=(f"The papers' claims, {_where(*self.reproductions)}",),
            parts=(*sentences, verdicts, *([lacking] if self.lacking else [])),
            lead=sentences,
            sections=(overview, *map(_section, self.reproductions)),
            details=(lacking,) if self.lacking else (),
            kind="recipes",
        )

    def as_dict(self) -> dict[str, Any]:
        """Return every result as JSON can hold it."""
        found = [entry.as_dict() for entry in self.reproductions]
        return {"scale": self.scale, "recipes": found, "lacking": dict(self.lacking)}

    def report(self, path: str | Path | None = None) -> Path:
        """Write the board as one HTML page that opens offline, by default `report.html` here."""

        def text() -> str:
            from layerscope.show import render

            return render([self.document()])

        return write_page("report.html" if path is None else path, text)


def _where(*found: Reproduction) -> str:
    """Return what claims were judged on, in words."""
    scale = found[0].scale
    if scale != YOURS:
        return f"scale {scale}"
    settings = found[0].recipe.scales[scale]
    return f"{settings.hub} on {settings.data}"


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
    if scale == YOURS:
        where = ["--model", settings.hub, "--data", settings.data]
    command = shlex.join(["layerscope", "reproduce", recipe.name, *where])
    return Reproduction(recipe, scale, verdicts, evidence, (command,), versions())


LEAD = (
    "A claim held where the whole 95 % interval of its statistic lies beyond the threshold, which was fixed before any "
    "result; it is not decided where the interval straddles the threshold."
)


def _remarks(found: Reproduction) -> Iterator[Sentences]:
    yield Sentences(
        "What is measured",
        tuple(
            f"{v.claim.name}: {measured(v)[:-2]}; {over(v)})." for v in found.verdicts
        ),
    )
    wants = [f"{v.claim.name}: {v.wants}." for v in found.verdicts if v.wants]
    if wants:
        yield Sentences("What would decide it", tuple(wants))
    notes = (
        *([found.recipe.note + "."] if found.recipe.note else []),
        *found.evidence.notes,
    )
    if notes:
        yield Sentences("Notes", tuple(notes))


def _section(found: Reproduction) -> Section:
    name = found.recipe.name.lower()
    made = claims(found.named(), in_words=True), numbers(found.numbers())
    tables = [
        Table(t.title, t.columns, t.rows, name=f"{name}-{t.name}")
        for t in made
        if t.rows
    ]
    # the table says the first
    legend = tuple(text for part in list(_remarks(found))[1:] for text in part.texts)
    title = f"{found.recipe.name} · {found.summary}"
    return Section(
        name,
        title,
        f"{found.recipe.title} ({found.recipe.paper}).",
        (*tables, *found.evidence.plots),
        legend,
    )

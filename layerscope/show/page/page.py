"""From documents to the HTML of a page: every text escaped, scripts and styles embedded, nothing fetched."""

import base64
import gzip
import hashlib
import json
import re
from collections.abc import Sequence
from importlib.metadata import version
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from layerscope.core.saved import jsonable
from layerscope.show.document import Document, Facts, Frame, Section, Table, TokenGrid
from layerscope.show.looks import DARK, Json, config, series_names
from layerscope.show.numbers import chance
from layerscope.show.page.bundle import bundle
from layerscope.show.page.content import (
    DRAWN,
    SIZE,
    Named,
    anchor,
    figures,
    in_order,
    tables,
)
from layerscope.show.plain import plain
from layerscope.show.plots import Chart, Plot
from layerscope.show.sources import bibtex, cited

SCRIPTS = ("values.js", "table.js", "charts.js", "grid.js", "page.js", "anchors.js")
FOLDED = 12
"""Figures of a section beyond which the others are folded."""
OWN = ("findings", "runs", "cite", "contents", "controls", "content", "theme")
"""The anchors that every page has."""


def render(
    documents: Sequence[Document | Named],
    title: str = "",
    notes: Sequence[str] = (),
    *,
    percent: bool | None = None,
) -> str:
    """Return the page of documents as HTML, UTF-8, complete in itself.

    `title` is by default what the documents are of; `notes` stand above the first section. Layers
    are counted in `percent` of depth at first where there are models of several depths, unless the
    caller knows better.
    """
    named = [entry if isinstance(entry, Named) else Named(entry) for entry in documents]
    members = _numbered([member for entry in named for member in _members(entry)])
    kinds = _by_kind(members)
    plots = _plots(members)
    sections = _sections(members, series_names(plots))
    title = title or _title(named)
    scripts = [_own("theme.js"), "\n".join(map(_own, SCRIPTS))]
    vega = bundle()
    page = _environment().get_template("page.html")
    return page.render(
        title=title,
        members=members,
        kinds=kinds,
        facts=named[0].document.facts if len(named) == 1 else (),
        notes=[*notes, *_warnings_of_wholes(named)],
        differences={kind: _differences(alike) for kind, alike in kinds.items()},
        sections=sections,
        bibtex=bibtex(cited(plots)),
        **_switches(members, percent),
        content=_packed(_json(_content(title, members, sections))),
        vega=_packed(vega),
        style=Markup(_own("page.css") + _own("grid.css")),
        scripts=[Markup(script) for script in scripts],
        policy=_policy([*scripts, vega]),
        version=version("layerscope"),
    )


def _by_kind(members: Sequence[Named]) -> dict[str, list[Named]]:
    kinds: dict[str, list[Named]] = {}
    for m in members:
        kinds.setdefault(m.document.kind, []).append(m)
    return kinds


def _plots(members: Sequence[Named]) -> list[Plot]:
    sections = [section for m in members for section in m.document.sections]
    return [
        part for section in sections for part in section.parts if isinstance(part, Plot)
    ]


def _title(named: Sequence[Named]) -> str:
    """Return what the documents are of, or how many of which kind there are."""
    if len(named) == 1:
        return _name(named[0])
    kinds = {entry.document.kind for entry in named}
    kind = kinds.pop() if len(kinds) == 1 else "results"
    return f"{len(named)} {kind} compared"


def _warnings_of_wholes(named: Sequence[Named]) -> list[str]:
    """Return the warnings of results whose members a page shows in their place."""
    wholes = [entry.document for entry in named if entry.document.members]
    return [warning for whole in wholes for warning in whole.warnings]


def _switches(members: Sequence[Named], percent: bool | None) -> Json:
    """Return whether layers can be counted in percent, and whether they are at first."""
    depths = {m.document.depth for m in members if m.document.depth}
    by_layer = any(isinstance(plot, Chart) and plot.x.depth for plot in _plots(members))
    return {
        "by_layer": by_layer,
        "percent": len(depths) > 1 if percent is None else percent,
    }


def _content(title: str, members: Sequence[Named], sections: Sequence[Json]) -> Json:
    """Return what the scripts read."""
    drawn = [figure for section in sections for figure in section["figures"]]
    return {
        "title": title,
        "runs": [
            {"name": m.name, "depth": m.document.depth or 0, "alone": m.alone}
            for m in members
        ],
        "figures": [{name: figure[name] for name in DRAWN} for figure in drawn],
        "tables": [table for section in sections for table in section["tables"]],
        "config": config(SIZE),
        "dark": DARK,
    }


def _members(entry: Named) -> list[Named]:
    """Return the results that one is made of, the first in its colour; a result that is one is itself."""
    members = entry.document.members
    if not members:
        return [entry]
    first, *others = members
    return [Named(first, look=entry.look), *map(Named, others)]


def _name(entry: Named) -> str:
    return plain(entry.name or " on ".join(entry.document.title))


def _numbered(named: Sequence[Named]) -> list[Named]:
    """Return documents with a number, a colour and a name each, the names numbered where two are the same."""
    names = [_name(entry) for entry in named]
    kinds = [entry.document.kind for entry in named]
    free = (
        i for i in range(2 * len(named)) if i not in {entry.look for entry in named}
    )
    result = []
    for i, (name, entry) in enumerate(zip(names, named, strict=True)):
        shown_name = (
            f"{name} ({names[: i + 1].count(name)})" if names.count(name) > 1 else name
        )
        color = next(free) if entry.look is None else entry.look
        result.append(
            Named(entry.document, shown_name, color, i, kinds.count(kinds[i]) == 1)
        )
    return result


def _sections(members: Sequence[Named], series: list[str]) -> list[Json]:
    """Return the sections of all documents, those of one name as one; one without anything in it is left out."""
    names = in_order(
        [[section.name for section in m.document.sections] for m in members]
    )
    by_name: dict[str, list[tuple[Named, Section]]] = {name: [] for name in names}
    for m in members:
        for section in m.document.sections:
            by_name[section.name].append((m, section))
    taken = {*OWN, *names}
    sections = [_section(owned, series, taken) for owned in by_name.values()]
    return [one for one in sections if one["figures"] or one["tables"] or one["grids"]]


def _section(
    owned: Sequence[tuple[Named, Section]], series: list[str], taken: set[str]
) -> Json:
    """Return the sections of one name as one; each figure, table and grid gets an anchor that is not `taken`."""
    sections = [section for _, section in owned]
    name = sections[0].name
    section_tables = list(tables(_of_kind(owned, Table | Frame)))
    for table in section_tables:
        table["id"] = anchor(taken, table["name"])
    section_figures = list(figures(_of_kind(owned, Plot), series))
    for figure in section_figures:
        figure["id"] = anchor(taken, figure["name"])
    grids = [(m, grid) for m, parts in _of_kind(owned, TokenGrid) for grid in parts]
    return {
        "id": name,
        "title": sections[0].title,
        "lead": " ".join(dict.fromkeys(section.lead for section in sections)),
        "legend": list(
            dict.fromkeys(text for section in sections for text in section.legend)
        ),
        "groups": [
            part
            for part in (section_figures[:FOLDED], section_figures[FOLDED:])
            if part
        ],
        "figures": section_figures,
        "tables": section_tables,
        "grids": [
            (m, grid, anchor(taken, f"{name} {i}"))
            for i, (m, grid) in enumerate(grids, 1)
        ],
    }


def _of_kind(
    owned: Sequence[tuple[Named, Section]], kind: Any
) -> list[tuple[Named, list[Any]]]:
    """Return each result's parts of a kind, as `isinstance` takes kinds."""
    return [
        (m, [part for part in section.parts if isinstance(part, kind)])
        for m, section in owned
    ]


def _differences(shown: Sequence[Named]) -> list[tuple[str, list[str]]] | None:
    """Return the facts in which results of a kind differ, each with its value in every one; None without facts."""
    facts: list[dict[str, str]] = []
    for member in shown:
        parts = [
            part
            for part in member.document.details
            if isinstance(part, Facts) and part.title
        ]
        facts.append({name: fact for part in parts for name, fact in part.entries})
    if not any(facts):
        return None
    names = in_order([list(of_one) for of_one in facts])
    values = {name: [of_one.get(name, "–") for of_one in facts] for name in names}
    return [
        (name, of_each) for name, of_each in values.items() if len(set(of_each)) > 1
    ]


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("layerscope.show.page", "files"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "plain": plain,
        "sentence": _sentence,
        "chance": chance,
    }
    return environment


def _sentence(text: str) -> Markup:
    """Return a sentence, what stands in backticks in it set as code."""
    return Markup(re.sub("`([^`]+)`", r"<code>\1</code>", str(escape(plain(text)))))


def _own(name: str) -> str:
    return (files("layerscope.show.page") / "files" / name).read_text(encoding="utf-8")


def _policy(scripts: Sequence[str]) -> str:
    """Return the content security policy that lets these scripts run, and nothing else."""
    digests = (hashlib.sha256(script.encode("utf-8")).digest() for script in scripts)
    allowed = " ".join(
        f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests
    )
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )


def _json(content: Json) -> str:
    return json.dumps(jsonable(content), allow_nan=False, separators=(",", ":"))


def _packed(text: str) -> str:
    """Return a text compressed: long tables and Vega are most of a page."""
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()

"""From documents to the HTML of a page: every text escaped, scripts and styles embedded, nothing fetched."""

import base64
import gzip
import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from importlib.resources import files

from markupsafe import Markup, escape

from layerscope.core import jsonable
from layerscope.show.document import Document, Facts, Frame, Section, Table, TokenGrid
from layerscope.show.looks import DARK, Json, Owned, config, series_names
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
from layerscope.show.templates import templates

SCRIPTS = ("values.js", "table.js", "charts.js", "grid.js", "page.js", "anchors.js")
FOLDED = 12
"""Figures of a section beyond which the others are folded."""
OWN = ("findings", "runs", "contents", "controls", "content", "theme")
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
    members: list[Named] = []
    warnings: list[str] = []
    for entry in named:
        parts = entry.document.members
        if parts:
            # a result of several is shown by these
            warnings += entry.document.warnings
            members += map(Named, parts)
        else:
            members.append(entry)
    members = [*_numbered(members)]
    facts: tuple[str, ...] = ()
    if len(named) == 1:
        facts = named[0].document.facts
    kinds: dict[str, list[Named]] = {}
    plots: list[Plot] = []
    for member in members:
        kinds.setdefault(member.document.kind, []).append(member)
        for section in member.document.sections:
            plots += [part for part in section.parts if isinstance(part, Plot)]
    sections = _sections(members, series_names(plots))
    title = title or _title(named)
    if percent is None:
        depths = {member.document.depth for member in members}
        percent = len(depths - {None}) > 1
    scripts = [_own("theme.js"), "\n".join(map(_own, SCRIPTS))]
    vega = bundle()
    environment = templates("layerscope.show.page")
    environment.filters |= {"sentence": _sentence, "chance": chance}
    return environment.get_template("page.html").render(
        title=title,
        members=members,
        kinds=kinds,
        facts=facts,
        notes=[*notes, *warnings],
        differences={kind: _differences(alike) for kind, alike in kinds.items()},
        sections=sections,
        by_layer=any(isinstance(plot, Chart) and plot.x.depth for plot in plots),
        percent=percent,
        content=_packed(_content(title, members, sections)),
        vega=_packed(vega),
        style=Markup(_own("page.css") + _own("grid.css")),
        scripts=[*map(Markup, scripts)],
        policy=_policy([*scripts, vega]),
        version=version("layerscope"),
    )


def _title(named: Sequence[Named]) -> str:
    """Return what the documents are of, or how many of which kind there are."""
    if len(named) == 1:
        return _name(named[0])
    kind, *others = {entry.document.kind for entry in named}
    if others:
        kind = "results"
    return f"{len(named)} {kind} compared"


def _content(title: str, members: Sequence[Named], sections: Sequence[Json]) -> str:
    """Return what the scripts read, as JSON."""
    results = [{"name": member.name, "alone": member.alone} for member in members]
    drawn: list[Json] = []
    tabled: list[Json] = []
    for section in sections:
        tabled += section["tables"]
        drawn += section["figures"]
    content = {
        "title": title,
        "runs": results,
        "figures": [{name: figure[name] for name in DRAWN} for figure in drawn],
        "tables": tabled,
        "config": config(SIZE),
        "dark": DARK,
    }
    return json.dumps(jsonable(content), allow_nan=False, separators=(",", ":"))


def _name(entry: Named) -> str:
    return plain(entry.name or " on ".join(entry.document.title))


def _numbered(named: Sequence[Named]) -> Iterator[Named]:
    """Yield documents with a number and a name each, the names numbered where two are the same."""
    names = [_name(entry) for entry in named]
    kinds = [entry.document.kind for entry in named]
    for i, entry in enumerate(named):
        name = names[i]
        if names.count(name) > 1:
            name = f"{name} ({names[: i + 1].count(name)})"
        alone = kinds.count(entry.document.kind) == 1
        yield Named(entry.document, name, i, alone)


def _sections(members: Sequence[Named], series: list[str]) -> list[Json]:
    """Return the sections of all documents, those of one name as one; one without anything in it is left out."""
    names = in_order(
        (section.name for section in member.document.sections) for member in members
    )
    by_name: dict[str, list[tuple[Named, Section]]] = {name: [] for name in names}
    for member in members:
        for section in member.document.sections:
            by_name[section.name].append((member, section))
    taken = {*OWN, *names}
    sections = [_section(owned, series, taken) for owned in by_name.values()]
    return [one for one in sections if one["figures"] or one["tables"] or one["grids"]]


def _section(
    owned: Sequence[tuple[Named, Section]], series: list[str], taken: set[str]
) -> Json:
    """Return the sections of one name as one; each figure, table and grid gets an anchor that is not `taken`."""
    first = owned[0][1]
    legend: list[str] = []
    leads = []
    plots = []
    tabled = []
    grids: list[tuple[Named, TokenGrid, str]] = []
    for member, section in owned:
        legend += section.legend
        leads.append(section.lead)
        drawn = [
            Owned(part, member.name, member.number, member.alone)
            for part in section.parts
            if isinstance(part, Plot)
        ]
        plots.append(drawn)
        listed = [part for part in section.parts if isinstance(part, (Table, Frame))]
        tabled.append((member, listed))
        for part in section.parts:
            if isinstance(part, TokenGrid):
                name = f"{first.name} {len(grids) + 1}"
                grids.append((member, part, anchor(taken, name)))
    section_tables = [*tables(tabled)]
    section_figures = [*figures(plots, series)]
    for entry in (*section_tables, *section_figures):
        entry["id"] = anchor(taken, entry["name"])
    return {
        "id": first.name,
        "title": first.title,
        "lead": " ".join(dict.fromkeys(leads)),
        "legend": [*dict.fromkeys(legend)],
        "groups": [*filter(None, (section_figures[:FOLDED], section_figures[FOLDED:]))],
        "figures": section_figures,
        "tables": section_tables,
        "grids": grids,
    }


def _differences(shown: Sequence[Named]) -> list[tuple[str, list[str]]] | None:
    """Return the facts in which results of a kind differ, each with its value in every one; None without facts."""
    facts: list[dict[str, str]] = []
    for member in shown:
        facts.append({})
        for part in member.document.details:
            if isinstance(part, Facts) and part.title:
                facts[-1].update(part.entries)
    if not any(facts):
        return None
    differing = []
    for name in in_order(facts):
        values = [entries.get(name, "–") for entries in facts]
        if len(set(values)) > 1:
            differing.append((name, values))
    return differing


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


def _packed(text: str) -> str:
    """Return a text compressed: long tables and Vega are most of a page."""
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()

"""From documents to the HTML of a page: every text escaped, scripts and styles embedded, nothing fetched."""

import base64
import gzip
import hashlib
import json
import re
from collections.abc import Sequence
from importlib.metadata import version
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from layerscope.core.saved import jsonable
from layerscope.show.document import Document, Facts, Frame, Table, TokenGrid
from layerscope.show.looks import DARK, config, series_names
from layerscope.show.numbers import chance
from layerscope.show.page.bundle import bundle
from layerscope.show.page.content import (
    DRAWN,
    SIZE,
    Json,
    Named,
    anchor,
    figures,
    groups,
    in_order,
    tables,
)
from layerscope.show.plain import plain
from layerscope.show.plots import Chart, Plot
from layerscope.show.sources import bibtex, cited

SCRIPTS = ("values.js", "table.js", "charts.js", "grid.js", "page.js", "anchors.js")
OWN = ("findings", "runs", "cite", "contents", "controls", "content", "theme", "overlay")
"""The anchors that every page has."""


def render(
    given: Sequence[Document | Named],
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
    named = [entry if isinstance(entry, Named) else Named(entry) for entry in given]
    shown = _numbered([member for entry in named for member in _members(entry)])
    kinds: dict[str, list[Named]] = {}
    for m in shown:
        kinds.setdefault(m.document.kind, []).append(m)
    depths = {m.document.depth for m in shown if m.document.depth}
    every = [part for m in shown for section in m.document.sections for part in section.parts]
    names = series_names([part for part in every if isinstance(part, Plot)])
    parts, single = _sections(shown, names), named[0].document
    kind = single.kind if len({entry.document.kind for entry in named}) == 1 else "results"
    title = title or (_name(named[0]) if len(named) == 1 else f"{len(named)} {kind} compared")
    vega, scripts = bundle(), [_own("theme.js"), "\n".join(map(_own, SCRIPTS))]
    drawn = [figure for part in parts for figure in part["figures"]]
    charts = [part for part in every if isinstance(part, Chart)]
    over = [series.name for chart in charts for series in chart.series if series.right]
    content: Json = {
        "title": title,
        "runs": [
            {
                "name": m.name,
                "depth": m.document.depth or 0,
                "alone": m.alone,
            }
            for m in shown
        ],
        "figures": [{name: figure[name] for name in DRAWN} for figure in drawn],
        "tables": [table for part in parts for table in part["tables"]],
        "config": config(SIZE),
        "dark": DARK,
    }
    papers = cited([m.document for m in shown])
    return (
        _environment()
        .get_template("page.html")
        .render(
            title=title,
            members=shown,
            kinds=kinds,
            facts=single.facts if len(named) == 1 else (),
            notes=[
                *notes,
                *(
                    text
                    for entry in named
                    if entry.document.members
                    for text in entry.document.warnings
                ),
            ],
            differences={kind: _differences(own) for kind, own in kinds.items()},
            sections=parts,
            papers=papers,
            bibtex=bibtex(paper for paper, _ in papers),
            by_layer=any(chart.x.depth for chart in charts),
            overlays=over[0] if over else "",
            overlaid=bool(over) and len(shown) == 1,
            percent=len(depths) > 1 if percent is None else percent,
            content=_packed(_json(content)),
            vega=_packed(vega),
            style=Markup(_own("page.css") + _own("grid.css")),
            scripts=[Markup(script) for script in scripts],
            policy=_policy([*scripts, vega]),
            version=version("layerscope"),
        )
    )


def _members(entry: Named) -> list[Named]:
    """Return the results that one is made of, the first in its colour; a result that is one is itself."""
    known = entry.document.members
    return (
        [Named(member, look=None if i else entry.look) for i, member in enumerate(known)]
        if known
        else [entry]
    )


def _name(entry: Named) -> str:
    return plain(entry.name or " on ".join(entry.document.title))


def _numbered(named: Sequence[Named]) -> list[Named]:
    """Return documents with a number, a colour and a name each, the names numbered where two are the same."""
    names = [_name(entry) for entry in named]
    kinds = [entry.document.kind for entry in named]
    free = (i for i in range(2 * len(named)) if i not in {entry.look for entry in named})
    found = []
    for i, (name, entry) in enumerate(zip(names, named, strict=True)):
        called = f"{name} ({names[: i + 1].count(name)})" if names.count(name) > 1 else name
        color = next(free) if entry.look is None else entry.look
        found.append(Named(entry.document, called, color, i, kinds.count(kinds[i]) == 1))
    return found


def _sections(shown: Sequence[Named], names_of_series: list[str]) -> list[Json]:
    """Return the sections of all documents, those of one name as one; one without anything in it is left out."""
    found = []
    names = in_order([[section.name for section in m.document.sections] for m in shown])
    taken = {*OWN, *names}
    for name in names:
        owned = [
            (m, section) for m in shown for section in m.document.sections if section.name == name
        ]
        tabled = list(
            tables([(m, [p for p in s.parts if isinstance(p, (Table, Frame))]) for m, s in owned])
        )
        plots = [(m, [p for p in s.parts if isinstance(p, Plot)]) for m, s in owned]
        drawn = list(figures(plots, names_of_series))
        grids = [
            (m, part)
            for m, section in owned
            for part in section.parts
            if isinstance(part, TokenGrid)
        ]
        for table in tabled:
            table["id"] = anchor(taken, table["name"], f"{table['name']} table")
        for figure in drawn:
            figure["id"] = anchor(taken, figure["name"], figure["variant"], figure["title"])
        grouped = groups(drawn)
        section = {
            "id": name,
            "title": owned[0][1].title,
            "lead": " ".join(dict.fromkeys(section.lead for _, section in owned)),
            "legend": list(dict.fromkeys(text for _, section in owned for text in section.legend)),
            "groups": grouped,
            "figures": [figure for group in grouped for row in group["rows"] for figure in row],
            "tables": tabled,
            "grids": [
                (m, part, anchor(taken, name, str(i))) for i, (m, part) in enumerate(grids, 1)
            ],
        }
        if drawn or section["tables"] or section["grids"]:
            found.append(section)
    return found


def _differences(shown: Sequence[Named]) -> list[tuple[str, list[str]]] | None:
    """Return the facts in which results of a kind differ, each with its value in every one; None without facts."""
    groups = [
        [part for part in m.document.details if isinstance(part, Facts) and part.title]
        for m in shown
    ]
    known = [
        {f"{part.title.lower()}.{name}": fact for part in own for name, fact in part.entries}
        for own in groups
    ]
    rows = {
        name: [facts.get(name, "–") for facts in known]
        for name in in_order([list(facts) for facts in known])
    }
    return (
        [(name, values) for name, values in rows.items() if len(set(values)) > 1]
        if any(known)
        else None
    )


def _environment() -> Environment:
    found = Environment(
        loader=PackageLoader("layerscope.show.page", "files"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters |= {
        "plain": plain,
        "plain_lines": lambda text: "\n".join(map(plain, text.split("\n"))),
        "sentence": _sentence,
        "chance": chance,
    }
    return found


def _sentence(text: str) -> Markup:
    """Return a sentence, what stands in backticks in it set as code."""
    return Markup(re.sub("`([^`]+)`", r"<code>\1</code>", str(escape(plain(text)))))


def _own(name: str) -> str:
    return (files("layerscope.show.page") / "files" / name).read_text(encoding="utf-8")


def _policy(scripts: Sequence[str]) -> str:
    """Return the content security policy that lets these scripts run, and nothing else."""
    digests = (hashlib.sha256(script.encode("utf-8")).digest() for script in scripts)
    allowed = " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )


def _json(content: Json) -> str:
    return json.dumps(jsonable(content), allow_nan=False, separators=(",", ":"))


def _packed(text: str) -> str:
    """Return a text compressed: long tables and Vega are most of a page."""
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()

"""From documents to the HTML of a page: every text escaped, scripts and styles embedded, nothing fetched."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup
from plotly.offline import get_plotlyjs

from layerscope import __version__
from layerscope.core.saved import jsonable
from layerscope.show.document import Document, Facts, Frame, Table, TokenGrid
from layerscope.show.page.content import Json, LongTable, Member, Named, Section, in_order
from layerscope.show.page.figures import figures, groups
from layerscope.show.page.tables import tables
from layerscope.show.page.template import environment, own, policy
from layerscope.show.plain import plain
from layerscope.show.plots import Plot

SCRIPTS = ("values.js", "table.js", "plots.js", "grid.js", "page.js")


def render(
    given: Sequence[Document | Named], title: str = "", notes: Sequence[str] = (), *, percent: bool | None = None
) -> str:
    """Return the page of documents as HTML, UTF-8, complete in itself.

    `title` is by default what the documents are of; `notes` stand above the first section. Layers are counted in
    `percent` of depth at first where there are several runs, or models of several depths, unless the caller knows
    better.
    """
    named = [entry if isinstance(entry, Named) else Named(entry) for entry in given]
    shown = members([member for entry in named for member in _members(entry)])
    depths = [entry.document.depth for entry in shown if entry.document.depth]
    several = len(set(depths)) > 1 or sum(entry.document.kind == "runs" for entry in shown) > 1
    parts, single = sections(shown), named[0].document
    title = title or (_name(named[0]) if len(named) == 1 else f"{len(named)} {_kind(named)} compared")
    notes = [*notes, *(text for entry in named if entry.document.members for text in entry.document.warnings)]
    scripts = [own("theme.js"), get_plotlyjs(), "\n".join(own(name) for name in SCRIPTS)]
    kinds = list(dict.fromkeys(entry.document.kind for entry in shown))
    content: Json = {
        "title": title,
        "runs": [
            {"name": m.name, "depth": m.document.depth or 0, "look": m.look, "alone": _is_alone(m, shown)}
            for m in shown
        ],
        "figures": [
            {"kind": f.kind, "title": f.title, "file": f.file, "unit": f.unit, **f.drawn}
            for part in parts
            for f in part.figures
        ],
        "tables": [vars(table) | {"long": isinstance(table, LongTable)} for part in parts for table in part.tables],
    }  # fmt: skip
    choices = [choice for figure in content["figures"] for choice in figure["choices"]]
    over = [(choice["run"], s["name"]) for choice in choices for s in choice.get("series", ()) if "right" in s]
    return environment().get_template("page.html").render(
        title=title,
        members=shown,
        kinds=[(kind, [m for m in shown if m.document.kind == kind]) for kind in kinds],
        facts=single.facts if len(named) == 1 else (),
        notes=notes,
        differences={kind: differences([m for m in shown if m.document.kind == kind]) for kind in kinds},
        sections=parts,
        by_layer=any("depth" in choice.get("x", choice) for choice in choices),
        overlays=over[0][1] if over else "",
        overlaid=len({run for run, _ in over}) == 1,
        percent=several if percent is None else percent,
        content=jsonable(content),
        style=Markup(own("page.css") + own("grid.css")),
        scripts=[Markup(script) for script in scripts],
        policy=policy(scripts),
        version=__version__,
    )  # fmt: skip


def _members(entry: Named) -> list[Named]:
    """Return the results that one is made of, the first in its colour; a result that is one is itself."""
    known = entry.document.members
    return [Named(member, look=None if i else entry.look) for i, member in enumerate(known)] if known else [entry]


def _name(entry: Named) -> str:
    return plain(entry.name or " on ".join(entry.document.title))


def members(named: Sequence[Named]) -> list[Member]:
    """Return documents with a name each, numbered where two have the same, and a colour."""
    names = [_name(entry) for entry in named]
    free = (i for i in range(2 * len(named)) if i not in {entry.look for entry in named})
    return [
        Member(
            i, f"{name} ({names[: i + 1].count(name)})" if names.count(name) > 1 else name, entry.document,
            next(free) if entry.look is None else entry.look,
        )
        for i, (name, entry) in enumerate(zip(names, named, strict=True))
    ]  # fmt: skip


def sections(shown: Sequence[Member]) -> list[Section]:
    """Return the sections of all documents, those of one name as one; one without anything in it is left out."""
    found = []
    for name in in_order([[section.name for section in m.document.sections] for m in shown]):
        owned = [(m, section) for m in shown for section in m.document.sections if section.name == name]
        drawn = list(figures([(m, [p for p in s.parts if isinstance(p, Plot)]) for m, s in owned]))
        held = list(tables([(m, [p for p in s.parts if isinstance(p, (Table, Frame))]) for m, s in owned]))
        grids = tuple((m, part) for m, section in owned for part in section.parts if isinstance(part, TokenGrid))
        legend = tuple(dict.fromkeys(text for _, section in owned for text in section.legend))
        lead = " ".join(dict.fromkeys(section.lead for _, section in owned))
        if drawn or held or grids:
            found.append(Section(name, owned[0][1].title, lead, groups(drawn), tuple(held), legend, grids))
    return found


def differences(shown: Sequence[Member]) -> list[tuple[str, list[str]]] | None:
    """Return the facts in which results of a kind differ, each with its value in every one; None without facts."""
    known = [
        {
            f"{facts.title.lower()}.{name}": fact
            for facts in m.document.details
            if isinstance(facts, Facts) and facts.title
            for name, fact in facts.entries
        }
        for m in shown
    ]
    if not any(known):
        return None
    rows = {name: [facts.get(name, "–") for facts in known] for name in in_order([list(facts) for facts in known])}
    return [(name, values) for name, values in rows.items() if len(set(values)) > 1]


def _kind(shown: Sequence[Named]) -> str:
    kinds = {entry.document.kind for entry in shown}
    return kinds.pop() if len(kinds) == 1 else "results"


def _is_alone(member: Member, shown: Sequence[Member]) -> bool:
    return sum(other.document.kind == member.document.kind for other in shown) == 1

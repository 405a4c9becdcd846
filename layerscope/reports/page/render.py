"""From what the page says to its HTML: every text escaped, scripts and styles embedded, nothing fetched."""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from layerscope import __version__
from layerscope.metrics.registry import about
from layerscope.reports.curves import LOWEST, SIMILAR
from layerscope.reports.page.content import sections, shown
from layerscope.reports.page.facts import differences, facts, unlike
from layerscope.reports.page.tables import layers_table, long_table
from layerscope.reports.plain import plain
from layerscope.runs.run import Run

SCRIPTS = ("values.js", "table.js", "plots.js", "page.js")


def render(runs: Sequence[Run]) -> str:
    """Return the page of runs as HTML, UTF-8, complete in itself."""
    known = shown(runs)
    parts = sections(known)
    figures = [figure for part in parts for figure in part.figures]
    title = _title(known[0].run) if len(known) == 1 else f"{len(known)} runs compared"
    content = {
        "title": title,
        "runs": [{"name": plain(entry.name), "depth": entry.run.depth} for entry in known],
        "figures": [{"kind": f.kind, "title": f.title, "file": f.file, "unit": f.unit, **f.drawn} for f in figures],
        "layers": layers_table(known),
        "frame": long_table(known),
    }
    scripts = [_own("theme.js"), get_plotlyjs(), "\n".join(_own(name) for name in SCRIPTS)]
    return (
        _environment()
        .get_template("page.html")
        .render(
            title=title,
            runs=[(entry, facts(entry.run)) for entry in known],
            differences=differences(runs),
            unlike=unlike(runs),
            sections=parts,
            standing_out=standing_out(),
            content=_numbers(content),
            style=Markup(_own("page.css")),
            scripts=[Markup(script) for script in scripts],
            policy="; ".join(
                (
                    "default-src 'none'",
                    f"script-src {' '.join(_hash(script) for script in scripts)}",
                    "style-src 'unsafe-inline'",
                    "img-src data: blob:",
                    "base-uri 'none'",
                    "form-action 'none'",
                )
            ),
            version=__version__,
        )
    )


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("layerscope.reports.page", "files"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["plain"] = plain
    environment.filters["script_json"] = _script_json
    return environment


def _script_json(value: object) -> Markup:
    """Return JSON that cannot end the script element it stands in."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def _numbers(value: Any) -> Any:
    """Return a structure with what is not finite as None, and numpy's numbers as Python's."""
    if isinstance(value, dict):
        return {key: _numbers(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_numbers(entry) for entry in value]
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value


def standing_out() -> str:
    """Return the rule by which a layer of a curve is marked."""
    low = ", ".join(about(name).title for name in LOWEST)
    return (
        f"the highest of layers 1 and up ({low}: the lowest; similarities: the layer from which on the value stays "
        f"above {SIMILAR}; saturated: above half); no verdict."
    )


def _title(run: Run) -> str:
    return f"{plain(str(run.info['model']['name']))} on {plain(str(run.info['data']['name']))}"


def _own(name: str) -> str:
    return (files("layerscope.reports.page") / "files" / name).read_text(encoding="utf-8")


def _hash(script: str) -> str:
    digest = hashlib.sha256(script.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"

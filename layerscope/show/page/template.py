"""How a page is put together: every text escaped, scripts and styles embedded, nothing fetched."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Sequence
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from layerscope.show.document import Prediction
from layerscope.show.numbers import chance
from layerscope.show.plain import plain


def environment() -> Environment:
    """Return the environment of the templates in `files`."""
    found = Environment(
        loader=PackageLoader("layerscope.show.page", "files"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters["plain"] = plain
    found.filters["sentence"] = _sentence
    found.filters["plain_lines"] = lambda text: "\n".join(map(plain, text.split("\n")))
    found.filters["chance"] = chance
    found.filters["listed"] = _listed
    found.filters["script_json"] = _script_json
    return found


def _sentence(text: str) -> Markup:
    """Return a sentence, what stands in backticks in it set as code."""
    return Markup(re.sub("`([^`]+)`", r"<code>\1</code>", str(escape(plain(text)))))


def _listed(cell: Prediction) -> str:
    """Return the likeliest predictions in one line."""
    return " · ".join(f"{text} {chance(probability)}" for text, probability in cell.tops)


def own(name: str) -> str:
    """Return a script or style of ours."""
    return (files("layerscope.show.page") / "files" / name).read_text(encoding="utf-8")


def policy(scripts: Sequence[str]) -> str:
    """Return the content security policy that lets these scripts run, and nothing else."""
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src {' '.join(_hash(script) for script in scripts)}",
            "style-src 'unsafe-inline'",
            "img-src data: blob:",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )


def _script_json(value: object) -> Markup:
    """Return JSON that cannot end the script element it stands in."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def _hash(script: str) -> str:
    digest = hashlib.sha256(script.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"

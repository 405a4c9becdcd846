"""Vega's own script, which a page carries and vl-convert brings."""

import os
from importlib.metadata import version
from pathlib import Path

from layerscope.core import LayerscopeError, aside

CACHE = "LAYERSCOPE_CACHE"
"""The variable of the environment that names the folder of the cache."""
SNIPPET = "window.vegaEmbed = vegaEmbed;"


def bundle() -> str:
    """Return the script of Vega, Vega-Lite and vega-embed.

    vl-convert takes seconds to put it together, so it is kept in the cache, by version; where that
    cannot be written it is made each time.
    """
    import vl_convert

    usual = Path.home() / ".cache" / "layerscope"
    folder = Path(os.environ.get(CACHE) or usual)
    path = folder / f"vega-{version('vl-convert-python')}.js"
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        script = str(vl_convert.javascript_bundle(SNIPPET))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        aside(
            path,
            lambda part: part.write_text(script, encoding="utf-8"),
            writer=f".{os.getpid()}",
        )
    except (OSError, LayerscopeError):
        pass
    return script

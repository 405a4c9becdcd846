from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from layerscope import lens as verb
from layerscope.cli import output
from layerscope.cli.making import Options, command
from layerscope.cli.output import Figures, Json
from layerscope.core.shared_options import OUTPUT

PAGES = (".html", ".htm")
PAGE = "lens.html"
EXAMPLES = """
What every layer says comes next, over 24 tokens that the model writes itself:
  layerscope lens gpt2 --prompt "Simply put, the theory of relativity states" --tokens 24

What a masked language model puts into the gap, layer by layer, as a page:
  layerscope lens bert-base-uncased --prompt "Paris is the [MASK] of France." --page gap.html

The class each layer would give your samples, with tables, a page and paper figures:
  layerscope lens ./my-classifier --data tickets.csv --samples 100 --out lens --figures figures
"""


@command(verb, EXAMPLES)
def lens(
    options: Options,
    *,
    page: Annotated[
        str | None, Parameter(help="HTML file for the grid; it opens offline.", group=OUTPUT, metavar="FILE")
    ] = None,
    figures: Figures = None,
    json: Json = False,
) -> None:
    """Print the reading, and write its pages and figures."""
    from layerscope.show.written import PAGE_MARK, ending

    file = None if page is None else ending(Path(page), "page", "--page", PAGES, PAGE_MARK)
    reading, out = verb(**options), options.get("out")
    pages = [path for path in (file, None if out is None else Path(out).expanduser() / PAGE) if path is not None]

    def write() -> list[Path]:
        from layerscope.reports.page import report

        output.draw(reading, figures)
        return [report(reading, path) for path in pages]

    output.finish_report(json, reading, out, write)

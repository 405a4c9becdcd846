from __future__ import annotations

from itertools import chain

from layerscope import report as verb
from layerscope.cli import output
from layerscope.cli.making import Options, command
from layerscope.cli.output import Figures, Json

EXAMPLES = """
A run and the scores of the same model, with paper figures:
  layerscope report runs/a scores/a --out both.html --figures figures/
"""


@command(verb, EXAMPLES, argument="RUNS")
def report(options: Options, *, figures: Figures = None, json: Json = False) -> None:
    """Write the page and the figures."""
    from layerscope.reports.results import opened

    shown = list(chain(*opened(options.pop("shown"))))
    page = verb(shown, **options)
    drawn = output.draw(shown, figures)
    if json:
        output.as_json({"page": str(page), "figures": drawn})
        return
    print(f"page: {page}")

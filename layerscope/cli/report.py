from __future__ import annotations

from layerscope.cli import output
from layerscope.cli.making import Options, command
from layerscope.cli.output import Figures, Json
from layerscope.reports.page.reporter import report as verb

EXAMPLES = """
A run and the scores of the same model, with paper figures:
  layerscope report runs/a scores/a --out both.html --figures figures/
"""


@command(verb, EXAMPLES, argument="RUNS")
def report(options: Options, *, figures: Figures = None, json: Json = False) -> None:
    """Write the page and the figures."""
    from layerscope.reports.page import opened

    chosen, evaluation, exits, compared = opened(options.pop("shown"))
    page = verb([*chosen, *([] if evaluation is None else [evaluation]), *exits, *compared], **options)
    drawn = output.draw(chosen, figures, evaluation=evaluation, exits=exits, comparisons=compared)
    if json:
        output.as_json({"page": str(page), "figures": drawn})
        return
    print(f"page: {page}")

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from layerscope.cli import output, usage
from layerscope.cli.options import AsJson, Figures, app


@app.command(epilog="Example:  layerscope report runs/a scores/a --out both.html --figures figures/")
def report(
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN|EVALUATION|EXITS|COMPARISON",
            help="Folders of runs, exits and compare; scores: a folder of evaluate or of mteb results, a CSV.",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            help="The page.", show_default="report.html in the folder of a single run, exits or comparison; else here"
        ),
    ] = None,
    figures: Figures = None,
    as_json: AsJson = False,
) -> None:
    """Write [bold]one HTML page[/bold] about runs, scores and exits: it opens offline and can be sent to anyone."""
    from layerscope.reports.page import opened, report as verb

    figures = usage.place("--figures", figures)
    chosen, evaluation, exits, compared = opened(runs)
    page = verb([*chosen, *([] if evaluation is None else [evaluation]), *exits, *compared], out)
    drawn = output.draw(chosen, figures, evaluation, exits, compared)
    if as_json:
        output.as_json({"page": str(page), "figures": drawn})
        return
    print(f"page: {page}")

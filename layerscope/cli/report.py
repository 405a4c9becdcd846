from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from layerscope.cli import output, usage
from layerscope.cli.options import AsJson, Figures, app


@app.command(epilog="Example:  layerscope report runs/a runs/b --out compared.html --figures figures/")
def report(
    runs: Annotated[list[str], typer.Argument(help="Run folders; several are overlaid.", show_default=False)],
    out: Annotated[
        Path | None,
        typer.Option(help="The page.", show_default="report.html in the run's folder; here for several runs"),
    ] = None,
    figures: Figures = None,
    as_json: AsJson = False,
) -> None:
    """Write [bold]one HTML page[/bold] about one or more runs: it opens offline and can be sent to anyone."""
    from layerscope.reports.page import report as verb

    figures = usage.place("--figures", figures)
    page = verb(runs, out)
    drawn = output.draw(runs, figures)
    if as_json:
        output.as_json({"page": str(page), "figures": drawn})
        return
    print(f"page: {page}")

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from layerscope.cli import output, usage
from layerscope.cli.options import AsJson, Figures, app

if TYPE_CHECKING:
    from layerscope.comparison import Comparison


@app.command(
    epilog="""
[bold]Examples[/bold]

Two models on the same samples; the folder gets the numbers and a page:
  layerscope compare runs/minilm runs/e5 --out both

Checkpoints of one training, by their steps:
  layerscope compare runs/step1000 runs/step2000 runs/step4000 --metrics prompt_entropy,curvature
"""
)
def compare(
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN_A RUN_B [RUN]...", help="Run folders of the same samples; all against the first.",
            show_default=False,
        ),
    ],
    similarity: Annotated[
        str | None,
        typer.Option(
            help="Of layers, with commas: cka, cosine_similarity or another of the family.",
            show_default="cka; cosine_similarity where widths are equal",
        ),
    ] = None,
    metrics: Annotated[
        str | None, typer.Option(help="Metrics to compare, with commas.", show_default="all that every run has")
    ] = None,
    pooling: Annotated[
        str | None, typer.Option(help="Which one of several.", show_default="the first that all runs have")
    ] = None,
    site: Annotated[
        str | None, typer.Option(help="raw or normed.", show_default="raw, and the last layer after its norm")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the numbers and a page.")] = None,
    csv: Annotated[Path | None, typer.Option("--csv", help="File for the long frame.")] = None,
    figures: Figures = None,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Compare runs: [bold]which layers are alike[/bold], where metrics differ, what training changes."""
    out, figures = usage.place("--out", out), usage.place("--figures", figures)
    from layerscope.comparison import compare as verb
    from layerscope.comparison.comparison import COLUMNS
    from layerscope.reports.written import ending, write

    file = None if csv is None else ending(csv, "table", "--csv", (".csv",), ",".join(COLUMNS))
    found = verb(runs, similarity=similarity, metrics=metrics, pooling=pooling, site=site, out=out)
    if file is not None:
        write(file, found.table().to_csv(index=False), "table", "--csv")
    _finish(found, out, figures, as_json)


def _finish(found: Comparison, out: Path | None, figures: Path | None, json_wanted: bool) -> None:
    """Print a comparison, and write its page and figures where folders are named."""
    if not json_wanted:
        from layerscope.core.progress import paper
        from layerscope.show.terminal import show

        with output.whoever_reads():
            show(found.document(), paper())
    output.draw([], figures, comparisons=[found])
    page = None
    if out is not None:
        from layerscope.reports.page import report

        page = report(found, out / "report.html")
    if json_wanted:
        output.as_json(found.as_dict() | ({} if page is None else {"page": str(page)}))
    elif page is not None:
        print(f"\nwritten: {out}\npage: {page}")

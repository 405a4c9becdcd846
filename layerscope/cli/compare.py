from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from layerscope.cli import output
from layerscope.cli.making import Figures, Json, Options, command
from layerscope.comparison.comparer import compare as verb
from layerscope.core.shared_options import OUTPUT

if TYPE_CHECKING:
    from layerscope.comparison import Comparison

EXAMPLES = """
Two models on the same samples; the folder gets the numbers and a page:
  layerscope compare runs/minilm runs/e5 --out both

Checkpoints of one training, by their steps:
  layerscope compare runs/step1000 runs/step2000 runs/step4000 --metrics prompt_entropy,curvature
"""


@command(verb, EXAMPLES, argument="RUNS")
def compare(
    options: Options,
    *,
    csv: Annotated[
        str | None, Parameter(help="CSV file for every number, one a row.", group=OUTPUT, metavar="FILE")
    ] = None,
    figures: Figures = None,
    json: Json = False,
) -> None:
    """Print the comparison, and write its table, page and figures."""
    from layerscope.comparison.comparison import COLUMNS
    from layerscope.reports.written import ending, write

    file = None if csv is None else ending(Path(csv), "table", "--csv", (".csv",), ",".join(COLUMNS))
    found = verb(**options)
    if file is not None:
        write(file, found.table().to_csv(index=False), "table", "--csv")
    _finish(found, options.get("out"), figures, json)


def _finish(found: Comparison, out: str | None, figures: Path | None, json_wanted: bool) -> None:
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

        page = report(found, Path(out).expanduser() / "report.html")
    if json_wanted:
        output.as_json(found.as_dict() | ({} if page is None else {"page": str(page)}))
    elif page is not None:
        print(f"\nwritten: {out}\npage: {page}")

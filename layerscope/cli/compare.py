from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from layerscope import compare as verb
from layerscope.cli import output
from layerscope.cli.making import Options, command
from layerscope.cli.output import Figures, Json
from layerscope.core.shared_options import OUTPUT

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
        str | None, Parameter(help="CSV file for all numbers, one in each row.", group=OUTPUT, metavar="FILE")
    ] = None,
    figures: Figures = None,
    json: Json = False,
) -> None:
    """Print the comparison, and write its table, page and figures."""
    from layerscope.comparison.comparison import COLUMNS

    file, out = output.table_file(csv, ",".join(COLUMNS)), options.get("out")
    found = verb(**options)
    output.write_table(file, lambda: found.table().to_csv(index=False))
    output.finish_report(json, found, out, lambda: output.page_and_figures(found, out, figures))

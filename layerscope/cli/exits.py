from __future__ import annotations

from layerscope import exits as verb
from layerscope.cli import output
from layerscope.cli.making import Options, command
from layerscope.cli.output import Figures, Json

EXAMPLES = """
At most one prediction in a hundred may change, with 95 % confidence; labels are not needed:
  layerscope exits ./my-classifier --data held-out.csv --out early

At least 90 % accuracy, in the batches of your server, with paper figures:
  layerscope exits ./my-classifier --data held-out.csv --batch-size 8 --min-accuracy 0.9 --figures figures/

Exits of your own choice, by the margin between the two likeliest classes:
  layerscope exits ./my-vit --data photos/ --exits 4,8 --criterion margin --json
"""


@command(verb, EXAMPLES)
def exits(options: Options, *, figures: Figures = None, json: Json = False) -> None:
    """Print the report, and write its page and figures."""
    found, out = verb(**options), options.get("out")
    output.finish_report(json, found, out, lambda: output.page_and_figures(found, out, figures))

from __future__ import annotations

from layerscope import select as verb
from layerscope.cli import output
from layerscope.cli.making import Options, command
from layerscope.cli.output import Json

EXAMPLES = """
By the labels of a run, or the tasks of an evaluation:
  layerscope select runs/demo
  layerscope select scores/minilm

The fastest layer that loses at most one point:
  layerscope select runs/demo --max-loss 1.0

A run without labels, by rules tried on models of your own; then by one rule, whatever its record:
  layerscope select runs/new --evidence scores.csv --evidence runs/one --evidence runs/two
  layerscope select runs/new --rule half-text
"""


@command(verb, EXAMPLES, argument="RUN_OR_SCORES")
def select(options: Options, *, json: Json = False) -> None:
    """Print the choice."""
    found, out = verb(**options), options.get("out")
    output.finish_report(json, found, out, lambda: output.page_and_figures(found, out))

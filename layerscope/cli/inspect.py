from __future__ import annotations

from dataclasses import asdict

from layerscope import inspect as verb
from layerscope.cli import output
from layerscope.cli.making import Options, command
from layerscope.cli.output import Json

EXAMPLES = """
The encoder of a model of two stacks:
  layerscope inspect google-t5/t5-small --part encoder
"""


@command(verb, EXAMPLES)
def inspect(options: Options, *, json: Json = False) -> None:
    """Print what is found."""
    found = verb(**options)
    if json:
        output.as_json([asdict(entry) for entry in found])
        return
    for entry in found:
        output.show(entry.document())

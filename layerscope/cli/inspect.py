from __future__ import annotations

from layerscope.cli import output
from layerscope.cli.making import Json, Options, command
from layerscope.models.inspector import inspect as verb

EXAMPLES = """
The encoder of a model of two stacks:
  layerscope inspect google-t5/t5-small --part encoder
"""


@command(verb, EXAMPLES)
def inspect(options: Options, *, json: Json = False) -> None:
    """Print what is found."""
    found = verb(**options)
    if json:
        from dataclasses import asdict

        output.as_json([asdict(entry) for entry in found])
        return
    from layerscope.show.terminal import show

    for entry in found:
        show(entry.document())

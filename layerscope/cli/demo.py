from __future__ import annotations

import sys

from layerscope.cli import output
from layerscope.cli.making import Json, Options, command, command_line
from layerscope.demo import demo as verb

EXAMPLES = """
The run and its page in a folder of your choice:
  layerscope demo --out demo
"""


@command(verb, EXAMPLES)
def demo(options: Options, *, json: Json = False) -> None:
    """Print the answer and the run."""
    answer, run = verb(**options, command=command_line())
    page = run.report()
    print(answer, file=sys.stderr if json else sys.stdout)
    output.finish(run, None, json, page)

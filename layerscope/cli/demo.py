from __future__ import annotations

import sys
from dataclasses import replace

from layerscope.cli import output
from layerscope.cli.making import Options, command, command_line
from layerscope.cli.output import Json
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
    print(answer, file=sys.stderr if json else sys.stdout)  # in one line, however narrow the terminal
    output.finish(
        json,
        lambda: run.as_dict() | {"page": str(page)},
        lambda: replace(run.document(), answer=""),
        f"\nrun folder: {run.path}\npage: {page}",
        saved=run.path,
    )

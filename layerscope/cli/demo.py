from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from layerscope.cli import output, usage
from layerscope.cli.options import AsJson, app


@app.command(epilog="Example:  layerscope demo --out demo")
def demo(
    out: Annotated[Path, typer.Option(help="Run folder.")] = Path("runs/demo"),
    samples: Annotated[str, typer.Option(help="How many docstrings.")] = "1000",
    as_json: AsJson = False,
) -> None:
    """Profile the embedded MiniLM on the docstrings of Python's library: no hub, about a minute."""
    from layerscope.demo import run_demo

    out = usage.place("--out", out) or out
    answer, run = run_demo(out, samples, shlex.join(["layerscope", *sys.argv[1:]]))
    page = run.report()
    if as_json:
        print(answer, file=sys.stderr)
    output.finish(run, None, as_json, page, answer)

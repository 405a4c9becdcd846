"""Several commands one after another in each of the processes that torchrun starts.

What each told is written down, but for the last one, with which the processes end as if they had
been started for it."""

import contextlib
import io
import json
import os
import sys
from pathlib import Path

from commands import time_once

from layerscope.cli import main, start
from layerscope.profiling import forward_pass

RANK = int(os.environ["RANK"])


def call(arguments):
    """Return status, standard output and standard error of a command line."""
    sys.argv = ["layerscope", *arguments]
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as end:
            return int(end.code or 0), out.getvalue(), err.getvalue()


def broken_second(*_):
    raise ValueError("a fault of process 1")


if __name__ == "__main__":
    time_once()
    folder, told = Path(sys.argv[1]), {}
    commands = json.loads((folder / "commands.json").read_text())
    last = commands.pop("last")
    for name, arguments in commands.items():
        arguments = arguments[RANK] if isinstance(arguments[0], list) else arguments
        whole = forward_pass.joined
        if name == "fault" and RANK == 1:
            forward_pass.joined = broken_second
        told[name] = call(arguments)
        forward_pass.joined = whole
    (folder / f"told-{RANK}.json").write_text(json.dumps(told))
    sys.argv = ["layerscope", *last]
    start()

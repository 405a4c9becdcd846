"""The command line: each command is made of a verb, whose result it prints; one module for each group of commands."""

import os
import signal
import sys
from contextlib import nullcontext, suppress
from typing import NoReturn

from cyclopts import CycloptsError

from layerscope.cli import output
from layerscope.cli.app import START, app, explained, machine
from layerscope.core import processes
from layerscope.core.errors import LayerscopeError, first_line, spelled, use_flags
from layerscope.core.progress import heed_interrupts

INTERRUPTED = 130
GO_ON = {"evaluate", "extract", "profile", "train"}
"""The commands that resume where they stopped."""
QUIET = {"TRANSFORMERS_VERBOSITY": "error", "HF_HUB_DISABLE_PROGRESS_BARS": "1", "TOKENIZERS_PARALLELISM": "false",
         "TORCH_CPP_LOG_LEVEL": "ERROR"}  # fmt: skip
"""What keeps the libraries' own chatter off the screen."""


@heed_interrupts()
def main() -> NoReturn:
    """Run the command line; a wrong input is one line and exit status 2, never a traceback."""
    _run()


def _run() -> NoReturn:
    """Run the command line; whatever goes wrong is one line and a status."""
    debug = bool(os.environ.get("LAYERSCOPE_DEBUG"))
    os.environ.update(({} if debug else QUIET) | os.environ)
    output.ready_output()
    try:
        app(sys.argv[1:], exit_on_error=False, print_error=False)
        sys.stdout.flush()
    except KeyboardInterrupt:
        # it is ending: a second one would break the line
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        stopped = "stopped"
        if {*sys.argv[1:2]} & GO_ON:
            stopped += ": run the same command to resume"
        _fail(stopped, INTERRUPTED)
    except BrokenPipeError:
        # who reads has seen enough (| head); what was computed is in its folder
        output.drop_output()
    except CycloptsError as error:
        _fail(explained(error), 2)
    except Exception as error:
        if debug:
            raise
        if isinstance(error, LayerscopeError):
            _fail(spelled(str(error)), 2)
        if (line := machine(error)) is not None:
            _fail(line, 2)
        line = f"unexpected {type(error).__name__}: {first_line(error)}"
        _fail(f"{line} (LAYERSCOPE_DEBUG=1 shows where)", 1)
    finally:
        use_flags([])
    if len(sys.argv) == 1:
        _fail(f"no command is given: start with {START}", 2)
    sys.exit(0)


def start() -> NoReturn:
    """Run the command line as a process of its own, which ends with it."""
    # Ctrl-C comes too late to stop what has ended
    with heed_interrupts(after=signal.SIG_IGN):
        try:
            _run()
        except SystemExit as end:
            status = int(end.code or 0)
    processes.leave(status)


def _fail(line: str, status: int) -> NoReturn:
    """Print one line, of several processes once, and end."""
    # the processes of a training meet in its Trainer, and interrupted ones nowhere
    apart = status == INTERRUPTED or sys.argv[1:2] == ["train"]
    with nullcontext(True) if apart else processes.reports_once(line) as ours:
        if ours:
            # where nobody reads standard error, the status still tells
            with suppress(OSError):
                print(f"layerscope: {output.printable(line)}", file=sys.stderr)
    sys.exit(status)

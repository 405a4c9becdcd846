"""The command line: parse, call a verb, print; one module a command."""

from __future__ import annotations

import os
import sys
from contextlib import nullcontext, suppress
from typing import Annotated, Any, NoReturn

import typer

from layerscope.cli import (  # noqa: F401  each adds its command to the app
    compare,
    demo,
    evaluate,
    exits,
    inspect,
    lens,
    profile,
    report,
    select,
    train,
    truncate,
    usage,
)
from layerscope.cli.options import app
from layerscope.core import processes

INTERRUPTED = 130
GO_ON = ("demo", "evaluate", "profile", "train")
"""The commands that go on where they were stopped."""
SHARED = ("profile", "train")
"""The commands whose work several processes share."""
UsageError: Any = typer.BadParameter.__base__  # typer may bring a click of its own, whose name is private


@app.callback(invoke_without_command=True)
def version(
    context: typer.Context,
    show: Annotated[bool, typer.Option("--version", help="Print the version.", is_eager=True)] = False,
) -> None:
    """See what every layer of a model knows, find the layer that serves you best, and use it."""
    if show:
        from layerscope import __version__

        print(f"layerscope {__version__}")
        raise typer.Exit
    _refuse_many(context.invoked_subcommand)


def _refuse_many(command: str | None) -> None:
    """Refuse a command that several processes would each do on their own."""
    if command not in (None, *SHARED) and processes.launched() > 1:
        from layerscope.core.errors import LayerscopeError

        raise LayerscopeError(
            f"{processes.launched()} processes were started, and layerscope {command} works in one: start it without "
            f"torchrun or accelerate ({' and '.join(SHARED)} work in several)"
        )


def _quiet() -> None:
    """Keep the libraries' own chatter off the screen; LAYERSCOPE_DEBUG lets it through."""
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


def main() -> NoReturn:
    """Run the command line; a wrong input is one line and exit status 2, never a traceback."""
    debug = bool(os.environ.get("LAYERSCOPE_DEBUG"))
    if not debug:
        _quiet()
    usage.ready_output()
    try:
        status = app(prog_name="layerscope", standalone_mode=False)
        sys.stdout.flush()
    except (KeyboardInterrupt, typer.Abort):
        status = INTERRUPTED
    except BrokenPipeError:  # who reads has seen enough (| head); what was computed is in its folder
        usage.drop_output()
        status = 0
    except UsageError as error:
        _fail(usage.told(error), 2)
    except Exception as error:
        if debug:
            raise
        from layerscope.core.errors import LayerscopeError

        if isinstance(error, LayerscopeError):
            _fail(str(error), 2)
        if (told := usage.machine(error)) is not None:
            _fail(told, 2)
        line = (str(error).strip().splitlines() or [""])[0]
        _fail(f"unexpected {type(error).__name__}: {line} (LAYERSCOPE_DEBUG=1 shows where)", 1)
    if status == INTERRUPTED:  # typer may turn Ctrl-C into a status of its own
        goes_on = any(name in sys.argv[1:2] for name in GO_ON)
        _fail("stopped: the same command goes on from here" if goes_on else "stopped", INTERRUPTED)
    sys.exit(status if isinstance(status, int) else 0)


def _fail(line: str, status: int) -> NoReturn:
    # the processes of a training meet in its Trainer, and interrupted ones nowhere
    apart = status == INTERRUPTED or sys.argv[1:2] == ["train"]
    with nullcontext(True) if apart else processes.one_voice(line) as ours:
        if ours:
            with suppress(OSError):  # where nobody reads standard error, the status still tells
                print(f"layerscope: {usage.printable(line)}", file=sys.stderr)
    sys.exit(status)

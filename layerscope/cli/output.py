"""What a command leaves on standard output: tables for a person, or JSON for a machine."""

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from layerscope.core import OUTPUT, LayerscopeError, processes
from layerscope.core.extras import lacking
from layerscope.show import Document
from layerscope.show.plain import plain


def into(text: str, metavar: str = "FILE") -> Parameter:
    """Return an option that names where something is written."""
    return Parameter(help=text, group=OUTPUT, metavar=metavar, negative=())


@dataclass(frozen=True)
class Printing:
    """How a command prints its result: as JSON, or as tables, all of them or the one that answers."""

    json: bool
    long: bool


Csv = Annotated[str | None, into("CSV file for the scores, layer × task.")]


def finish(
    printing: Printing,
    result: Any,
    *lines: str,
    saved: Path | None = None,
    **shown: Any,
) -> None:
    """Print a result as JSON, or as its document and the lines that follow; `saved` is the folder that holds it.

    `shown` is what of the result is shown.
    """
    with _readers(saved):
        if printing.json:
            as_json(result.as_dict(**shown))
            return
        show(result.document(**shown), printing)
        for line in lines:
            print(line)


@contextmanager
def _readers(saved: Path | None = None) -> Iterator[None]:
    """Within, a reader who has seen enough (| head) may close standard output; what is to be written to files is."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        drop_output()
    except OSError as error:
        if saved is None:
            raise
        drop_output()
        raise LayerscopeError(
            f"standard output cannot be written ({error.strerror or error}): the run is complete in {str(saved)!r}"
        ) from error


def result(result: Any, printing: Printing, out: str | None) -> None:
    """Print a result, and write its page into the folder where it was saved, if any.

    The page comes once the document is printed: should it fail, the result has been seen. Of
    several processes the first one does both.
    """
    if not processes.team().leads:
        return
    if not printing.json:
        finish(printing, result)
    pages = _page(result, out)
    with _readers():
        if printing.json:
            as_json(result.as_dict() | {"pages": pages})
            return
        if out is not None:
            print(f"\nwritten: {out}")
        for page in pages:
            print(f"page: {page}")


def _page(result: Any, out: str | None) -> list[str]:
    """Write the page of a result into its folder where one is named; return its path."""
    from layerscope.reports.verb import report

    if out is None:
        return []
    if package := lacking("charts"):
        print(
            f'no page: it needs {package} (pip install "layerscope[charts]")',
            file=sys.stderr,
        )
        return []
    return [str(report(result, Path(out).expanduser() / "report.html"))]


def show(document: Document, printing: Printing) -> None:
    """Print a document on a console on which a broken pipe raises its own error."""
    from rich.console import Console

    from layerscope.show import terminal

    class Paper(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    terminal.show(document, Paper(), long=printing.long)


def as_json(result: Any) -> None:
    """Print a result as JSON; what is not a number in it is an error of ours."""
    print(json.dumps(result, indent=2, allow_nan=False))


def table_file(csv: str | None, header: str) -> Path | None:
    """Return the path of a CSV file, refused before the long job where it cannot be one of ours."""
    from layerscope.show.written import ending

    if csv is None:
        return None
    return ending(Path(csv), "table", "--csv", (".csv",), header)


def write_table(file: Path | None, text: Callable[[], str]) -> None:
    """Write a table as CSV where a file is named."""
    if file is not None:
        from layerscope.show.written import write

        print(f"table: {write(file, text(), 'table', '--csv')}", file=sys.stderr)


def printable(line: str) -> str:
    """Return what is printed as one line, with what would steer a terminal spelt out."""
    return plain(" ".join(line.split()))


def ready_output() -> None:
    """Let standard output and error replace what their encoding cannot show: a run must not die of a `±`."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by the caller (>&-)
            nowhere = os.open(os.devnull, os.O_WRONLY)
            setattr(sys, name, os.fdopen(nowhere, "w", encoding="utf-8"))
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


def drop_output() -> None:
    """Send what is still to be written to a broken standard output nowhere, so that the end of Python is silent."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

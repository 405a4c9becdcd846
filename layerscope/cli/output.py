"""What a command leaves on standard output: tables for a person, or JSON for a machine."""

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from layerscope.core.errors import LayerscopeError
from layerscope.core.extras import lacking
from layerscope.core.options import OUTPUT
from layerscope.show.document import Document
from layerscope.show.plain import plain


def into(text: str, metavar: str = "FILE") -> Parameter:
    """Return an option that names where something is written."""
    return Parameter(help=text, group=OUTPUT, metavar=metavar, negative=())


@dataclass(frozen=True)
class Printing:
    """How a command prints its result: as JSON, or as tables, all of them or the one that answers."""

    json: bool = False
    long: bool = False


Figures = Annotated[
    Path | None, into("Folder for paper figures, as PNG, PDF and SVG.", "FOLDER")
]
Csv = Annotated[str | None, into("CSV file for the scores, layer × task.")]


def finish(
    printing: Printing,
    as_dict: Callable[[], Any],
    document: Callable[[], Document],
    *lines: str,
    saved: Path | None = None,
    write: Callable[[], Sequence[Path]] | None = None,
) -> None:
    """Print a result as JSON, or as its document and the lines that follow; `saved` is the folder that holds it.

    `write` writes its pages and figures, once the document is printed: should that fail, the result
    has been seen.
    """
    with _readers(saved):
        if not printing.json:
            show(document(), printing)
    pages = [] if write is None else [str(page) for page in write()]
    with _readers(saved):
        if printing.json:
            as_json(as_dict() | {"pages": pages} if write else as_dict())
        for line in (
            () if printing.json else (*lines, *(f"page: {page}" for page in pages))
        ):
            print(line)


@contextmanager
def _readers(saved: Path | None) -> Iterator[None]:
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


def result(
    result: Any, printing: Printing, out: str | None, figures: Path | None = None
) -> None:
    """Print a result that was saved in a folder where one is named, and write its page there, and its figures."""
    finish(
        printing,
        result.as_dict,
        result.document,
        *written(out),
        write=lambda: page_and_figures(result, out, figures),
    )


def written(out: str | None) -> list[str]:
    """Return the line on the folder that a result was written to, where one is named."""
    return [] if out is None else [f"\nwritten: {out}"]


def page_and_figures(
    result: Any, out: str | None, figures: Path | None = None
) -> list[Path]:
    """Write the page of a result into its folder and draw its figures, where folders are named; return the pages."""
    from layerscope.reports.verb import report

    draw(result, figures)
    if out is None:
        return []
    if package := lacking("charts"):
        print(
            f'no page: it needs {package} (pip install "layerscope[charts]")',
            file=sys.stderr,
        )
        return []
    return [report(result, Path(out).expanduser() / "report.html")]


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


def draw(shown: Any, folder: Path | None) -> list[str]:
    """Draw the figures of results where a folder is named; return their paths."""
    if folder is None:
        return []
    from layerscope.reports.figures import draw as verb

    drawn = verb(shown, folder)
    print(f"figures: {len(drawn)} files in {folder}", file=sys.stderr)
    return [str(path) for path in drawn]


def table_file(csv: str | None, header: str) -> Path | None:
    """Return the path of a CSV file, refused before the long job where it cannot be one of ours."""
    from layerscope.show.written import ending

    return (
        None if csv is None else ending(Path(csv), "table", "--csv", (".csv",), header)
    )


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
            setattr(
                sys,
                name,
                os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8"),
            )
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


def drop_output() -> None:
    """Send what is still to be written to a broken standard output nowhere, so that the end of Python is silent."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

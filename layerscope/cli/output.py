"""What a command leaves on standard output: tables for a person, or JSON for a machine."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from layerscope.cli import usage
from layerscope.core.errors import LayerscopeError
from layerscope.core.shared_options import OUTPUT

if TYPE_CHECKING:
    from layerscope.show.document import Document

Json = Annotated[
    bool, Parameter(help="Print the result as JSON on standard output.", group=OUTPUT, show_default=False, negative=())
]
Figures = Annotated[
    Path | None,
    Parameter(help="Folder for paper figures, as PNG and PDF.", group=OUTPUT, metavar="FOLDER", negative=()),
]
Csv = Annotated[str | None, Parameter(help="CSV file for the scores, layer × task.", group=OUTPUT, metavar="FILE")]


def finish(
    json_wanted: bool,
    as_dict: Callable[[], Any],
    document: Callable[[], Document],
    *lines: str,
    saved: Path | None = None,
) -> None:
    """Print a result as JSON, or as its document and the lines that follow; `saved` is the folder that holds it."""
    try:
        if json_wanted:
            as_json(as_dict())
        else:
            show(document())
            for line in lines:
                print(line)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        if saved is None:
            raise
        usage.drop_output()
        raise LayerscopeError(
            f"standard output cannot be written ({error.strerror or error}): the run is whole in {str(saved)!r}"
        ) from error


def finish_report(json_wanted: bool, found: Any, out: str | None, write: Callable[[], Sequence[Path]]) -> None:
    """Print a result, then have its pages and figures written: should that fail, the result has been seen."""
    if not json_wanted:
        with _whoever_reads():
            show(found.document())
    pages = write()
    if json_wanted:
        as_json(found.as_dict() | {"pages": [str(page) for page in pages]})
        return
    if out is not None:
        print(f"\nwritten: {out}")
    for page in pages:
        print(f"page: {page}")


def page_and_figures(found: Any, out: str | None, figures: Path | None = None) -> list[Path]:
    """Write the page of a result into its folder and draw its figures, where folders are named; return the pages."""
    from layerscope.reports.page import report

    draw(found, figures)
    return [] if out is None else [report(found, Path(out).expanduser() / "report.html")]


def show(document: Document) -> None:
    """Print a document."""
    from layerscope.core.progress import paper
    from layerscope.show.terminal import show as verb

    verb(document, paper())


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

    return None if csv is None else ending(Path(csv), "table", "--csv", (".csv",), header)


def write_table(file: Path | None, text: Callable[[], str]) -> None:
    """Write a table as CSV where a file is named."""
    if file is not None:
        from layerscope.show.written import write

        print(f"table: {write(file, text(), 'table', '--csv')}", file=sys.stderr)


@contextmanager
def _whoever_reads() -> Iterator[None]:
    """Within, standard output may be closed by its reader (| head): what is still to be written to files is written."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        usage.drop_output()

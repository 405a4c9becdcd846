"""What a command leaves on standard output: tables for a person, or JSON for a machine."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from layerscope.cli import usage

if TYPE_CHECKING:
    from layerscope.comparison import Comparison
    from layerscope.early_exit.exit_report import ExitReport
    from layerscope.runs import Run
    from layerscope.scores import Evaluation


@contextmanager
def whoever_reads() -> Iterator[None]:
    """Within, standard output may be closed by its reader (| head): what is still to be written to files is written."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        usage.drop_output()


def finish(run: Run, figures: Path | None, json_wanted: bool, page: Path | None = None, answer: str = "") -> None:
    """Print a run, and draw its figures where a folder is named; an output that breaks loses nothing of the run.

    An `answer` that is more than the run's own takes its place.
    """
    from layerscope.core.errors import LayerscopeError

    draw([run], figures)
    try:
        _print(run, json_wanted, page, answer)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        usage.drop_output()
        reason = error.strerror or error
        raise LayerscopeError(
            f"standard output cannot be written ({reason}): the run is whole in {str(run.path)!r}"
        ) from error


def finish_report(found: ExitReport | Comparison, out: str | None, figures: Path | None, json_wanted: bool) -> None:
    """Print a report of exits or a comparison, and write its page and figures where folders are named."""
    from layerscope.core.progress import paper
    from layerscope.early_exit.exit_report import ExitReport
    from layerscope.reports.page import report
    from layerscope.show.terminal import show

    if not json_wanted:
        with whoever_reads():
            show(found.document(), paper())
    if isinstance(found, ExitReport):
        draw([], figures, exits=[found])
    else:
        draw([], figures, comparisons=[found])
    page = None if out is None else report(found, Path(out).expanduser() / "report.html")
    if json_wanted:
        as_json(found.as_dict() | ({} if page is None else {"page": str(page)}))
    elif page is not None:
        print(f"\nwritten: {out}\npage: {page}")


def _print(run: Run, json_wanted: bool, page: Path | None, answer: str) -> None:
    from layerscope.core.progress import paper
    from layerscope.show.terminal import show

    if json_wanted:
        as_json(run.as_dict() | ({} if page is None else {"page": str(page)}))
        return
    document = run.document()
    if answer:
        print(answer)
    show(replace(document, answer="") if answer else document, paper())
    print(f"\nrun folder: {run.path}")
    if page is not None:
        print(f"page: {page}")


def as_json(result: Any) -> None:
    """Print a result as JSON; what is not a number in it is an error of ours."""
    print(json.dumps(result, indent=2, allow_nan=False))


def draw(
    runs: Sequence[Run],
    folder: Path | None,
    evaluation: Evaluation | None = None,
    exits: Sequence[ExitReport] = (),
    comparisons: Sequence[Comparison] = (),
) -> list[str]:
    """Draw the figures of runs, scores, exits and comparisons where a folder is named; return their paths."""
    if folder is None:
        return []
    from layerscope.reports.figures import draw as verb

    drawn = [str(path) for path in verb(runs, folder, evaluation=evaluation, exits=exits, comparisons=comparisons)]
    print(f"figures: {len(drawn)} files in {folder}", file=sys.stderr)
    return drawn

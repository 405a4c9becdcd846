"""The commands that choose a layer: evaluate, scores, select."""

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

import layerscope
from layerscope.cli import output
from layerscope.cli.making import Options, command
from layerscope.cli.output import Csv, Printing, into
from layerscope.core import LayerscopeError, processes
from layerscope.evaluation.kinds import kind_names
from layerscope.scores.verb import read_scores

FILES = Parameter(
    help=f"Your own data and what to do with them; repeatable. KIND is one of {', '.join(kind_names())}. "
    "Probes take texts, images or sounds; token-probe takes words, and the other kinds take texts.",
    group="Tasks",
    metavar="KIND:FILE",
    negative=(),
    allow_leading_hyphen=True,
)
Save = Annotated[str | None, into("Folder to save the scores in.", "FOLDER")]


@command(layerscope.evaluate, argument="MODEL_OR_RUN")
def evaluate(
    options: Options,
    printing: Printing,
    *,
    data: Annotated[list[str] | None, FILES] = None,
    csv: Csv = None,
) -> None:
    """Print the scores; a task that could not be scored makes the status 1."""
    from layerscope.scores.tables import HEADER, wide_csv

    table = output.table_file(csv, HEADER)
    tasks = [*filter(None, options.get("tasks", "").split(","))]
    options["tasks"] = [*map(str.strip, tasks), *map(_own, data or [])]
    options.setdefault("out", str(Path("scores") / Path(options["model_or_run"]).name))
    evaluation = layerscope.evaluate(**options)
    if not processes.team().leads:
        return
    print(f"results: {options['out']}", file=sys.stderr)
    output.write_table(table, lambda: wide_csv(evaluation))
    output.finish(printing, evaluation)
    if evaluation.failed:
        # why, was printed before
        print(
            f"not scored: {output.printable(', '.join(evaluation.failed))}",
            file=sys.stderr,
        )
        sys.exit(1)


def _own(text: str) -> str:
    """Return KIND:FILE as a task is named."""
    kind, _, path = text.partition(":")
    if not (kind and path):
        raise LayerscopeError(
            f"--data {text!r} is not KIND:FILE: write it as in classification:tickets.csv"
        )
    return f"{kind.lower()}:{path}"


@command(read_scores, argument="SCORES")
def scores(
    options: Options, printing: Printing, *, save: Save = None, csv: Csv = None
) -> None:
    """Print the scores, and what metrics say of them."""
    from layerscope.scores.tables import HEADER, wide_csv

    table = output.table_file(csv, HEADER)
    evaluation, shown, note = read_scores(**options)
    if note:
        print(note, file=sys.stderr)
    if save is not None:
        print(f"saved: {evaluation.save(save)}", file=sys.stderr)
    output.write_table(table, lambda: wide_csv(evaluation))
    output.finish(printing, evaluation, **shown)


@command(layerscope.select, argument="RUN_OR_SCORES_OR_MODEL")
def select(options: Options, printing: Printing) -> None:
    """Print the choice, and write its page."""
    output.result(layerscope.select(**options), printing, options.get("out"))

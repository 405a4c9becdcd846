"""The end of a training as a document: each depth with its score, its time and its size, baselines beside it."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from layerscope.runs import history, open_run
from layerscope.show.document import Cell, Document, Row, Table, columns

if TYPE_CHECKING:
    from layerscope.training.depths import Line, Trained

NAMES = {"layer_accuracy": "accuracy", "perplexity": "perplexity"}


def document(done: Trained) -> Document:
    """Return what a training bought, its last step, the table of depths, and the commands that come next."""
    run = open_run(done.history)
    last = history.document(run)
    folder = str(done.path)
    commands = [["layerscope", "report", str(done.history)]]
    if done.chosen is not None:
        best = str(done.chosen.layer)
        commands.insert(0, ["layerscope", "truncate", folder, "--layer", best, "--out", f"{folder}-{best}"])
    return Document(
        done.headline,
        last.title,
        last.facts,
        reasons=(*done.rivals, f"{last.answer}."),
        parts=(last.parts[0], _depths(done), *last.parts[1:]),
        commands=tuple(map(shlex.join, commands)),
    )


def _depths(done: Trained) -> Table:
    others = {line.layer: line for line in done.lines[len(done.own) :]}
    titles = ["layer", NAMES[done.own[0].metric], "ms", "MB", *(["separate model"] if others else [])]
    legend = (f"ms: per sample, {done.measured}",) if done.measured else ()
    rows = tuple(_row(line, others) for line in done.own)
    return Table("A model that ends at each layer", columns(titles), rows, legend)


def _row(line: Line, others: dict[int, Line]) -> Row:
    timed = ["–" if value is None else f"{value:.2f}" for value in (line.ms_per_sample, line.megabytes)]
    beside = [str(others[line.layer]) if line.layer in others else ""] if others else []
    return Row(tuple(map(Cell, (f"{line.layer} of {line.depth}", str(line), *timed, *beside))))

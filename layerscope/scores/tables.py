"""Scores as tables: a row for each model, of one model its layers by task or its tasks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from layerscope.scores.scored import (
    AVERAGE,
    FEW,
    SHIPPED,
    SHOWN,
    SITE,
    Score,
    Scored,
    Unit,
    named_layers,
    one_model,
    series_name,
    site_name,
)
from layerscope.scores.summary import summary_row
from layerscope.show.document import EMPTY, MARK, Cell, Column, Row, Table, columns

if TYPE_CHECKING:
    from layerscope.scores.evaluation import Evaluation


def summary_table(
    known: Sequence[Scored], evaluation: Evaluation, unit: Unit, title: str, shapes: bool = True
) -> Table:
    """Return a row a model, site and pooling; without its shapes where there is no room for them."""
    found = [summary_row(entry.grid) for entry in known]
    shown = [name for name in SHOWN if any(math.isfinite(row.get(name, math.nan)) for row in found)]
    shapes &= any(len(entry.grid.complete) > 1 for entry in known)
    heading = _heading(evaluation) if len(known) > 1 else "layers"
    rows = []
    for row, entry in zip(found, known, strict=True):
        name = _name(row, evaluation).removesuffix(" pooling" if "pooling" in heading else "")
        cells = [Cell(name if len(known) > 1 else named_layers(list(entry.grid.complete.index)).partition(" ")[2])]
        cells += [_scored(row, name, unit) for name in shown]
        line = tuple(entry.average.values()) if len(entry.average) > 1 else ()
        rows.append(Row((*cells, *([Cell("", shape=line)] if shapes else []))))
    titles = [Column(heading, "left"), *columns(SHOWN[name] for name in shown)]
    narrow = (summary_table(known, evaluation, unit, title, shapes=False),) if shapes else ()
    titles += [Column("by depth", "left")] if shapes else []
    return Table(title, tuple(titles), tuple(rows), tuple(_legend_of(known, evaluation)), narrow, name="summary")


def _name(about: dict[str, Any], evaluation: Evaluation) -> str:
    """Return what tells a row from the others: site and pooling, and the model where there are several."""
    own = site_name(about, evaluation.scores) if one_model(evaluation.scores) else ""
    return own or series_name(about, evaluation.scores)


def _heading(evaluation: Evaluation) -> str:
    """Return what `_name` names."""
    if not one_model(evaluation.scores):
        return "model"
    layers = evaluation.scores[evaluation.scores["kind"] == "layer"]
    return ", ".join(key for key in SITE if layers[key].nunique(dropna=False) > 1) or "model"


def _scored(found: dict[str, Any], name: str, unit: Unit) -> Cell:
    """Return a score, with the layer it is of where that is a finding."""
    value = found.get(name, math.nan)
    return Cell(unit.number(value), f"({found['best_layer']})" if name == "best" and value == value else "", value)


def _legend_of(known: Sequence[Scored], evaluation: Evaluation) -> Iterator[str]:
    embedded = any(0 in entry.grid.complete.index for entry in known)
    yield (
        "In parentheses the layer. Means run over the tasks present at every layer; the oracle takes each task's own "
        f"best layer{'; layer 0, the embedding output, is no candidate for either' if embedded else ''}."
    )
    alike: dict[str, list[str]] = {}
    for entry in known:
        alike.setdefault(_covered(entry), []).append(_name(entry.grid.about, evaluation))
    for facts, names in alike.items():
        named = f"{len(names)} of {len(known)}" if len(names) > FEW else " and ".join(names)
        yield f"{named}: {facts}."


def _covered(entry: Scored) -> str:
    """Return which layers and tasks the averages of a model run over, and what is left out."""
    grid = entry.grid
    tasks = grid.complete.shape[1]
    facts = f"{named_layers([int(layer) for layer in grid.complete.index])} on {tasks} task{'s' * (tasks != 1)}"
    if grid.left_out:
        facts += f"; left out with scores on fewer than {grid.needed} tasks: "
        facts += named_layers(grid.left_out)
    return facts + (f"; {grid.missing} of {grid.scores.size} scores missing" if grid.missing else "")


def by_layer(entry: Scored, unit: Unit, title: str) -> Table:
    """Return a row for each layer, the best of each task marked, and one for the model as shipped."""
    tasks, average, several = entry.tasks, entry.average, len(entry.layers) > 1
    best = {task: entry.best_on(task) for task in tasks}
    rows = []
    for layer in [*entry.layers, *([None] if len(entry.grid.baseline) else [])]:
        mean = entry.shipped if layer is None else average.get(layer, math.nan)
        cells = [_cell(Score(mean), unit, layer is not None and layer == entry.best)] if len(tasks) > 1 else []
        cells += [_cell(entry.at(layer, task), unit, layer is not None and best[task] == layer) for task in tasks]
        name = Cell(SHIPPED, value=entry.layers[-1] + 1) if layer is None else Cell(str(layer), value=layer)
        rows.append(Row((name, *cells), quiet=layer is None))
    titles = [Column(AVERAGE, "decimal", tuple(average.values()) if several else ())] if len(tasks) > 1 else []
    titles += [Column(task, "decimal", tuple(entry.grid.scores[task]) if several else ()) for task in tasks]
    narrow = (_by_task(entry, unit, title, shapes=several),)
    legend = tuple(_legend(entry, f"{MARK} "))
    return Table(title, (Column("layer"), *titles), tuple(rows), legend, narrow, name="by-task")


def _by_task(entry: Scored, unit: Unit, title: str, shapes: bool) -> Table:
    """Return a row for each task, without its shape where there is no room for it."""
    shipped = bool(len(entry.grid.baseline))
    titles = [*columns(("first", "best", "last", *([SHIPPED] if shipped else [])))]
    first, last, rows = entry.layers[0], entry.grid.depth, []
    for task in entry.tasks:
        best = entry.best_on(task)
        found = EMPTY if best is None else Cell(_text(entry.at(best, task), unit), f"({best})")
        ends = [Cell(unit.number(entry.at(layer, task).value)) for layer in (first, last)]
        more = [Cell(unit.number(entry.at(None, task).value))] if shipped else []
        line = [Cell("", shape=tuple(entry.grid.scores[task]))] if shapes else []
        rows.append(Row((Cell(task), ends[0], found, ends[1], *more, *line)))
    narrow = (_by_task(entry, unit, title, shapes=False),) if shapes else ()
    titles += [Column("by layer", "left")] if shapes else []
    legend = tuple(_legend(entry, "In parentheses: "))
    return Table(title, (Column("task", "left"), *titles), tuple(rows), legend, narrow)


def _cell(score: Score, unit: Unit, marked: bool) -> Cell:
    error = f"±{unit.number(score.error)}" if math.isfinite(score.error) and math.isfinite(score.value) else ""
    known = {"stderr": score.stderr, "low": score.low, "high": score.high}
    more = tuple((name, value) for name, value in known.items() if math.isfinite(value))
    return Cell(unit.number(score.value), error, score.value, marked, more=more)


def _text(score: Score, unit: Unit) -> str:
    cell = _cell(score, unit, marked=False)
    return f"{cell.text} {cell.detail}".strip()


def _legend(entry: Scored, mark: str) -> Iterator[str]:
    shipped = f"; {SHIPPED}: the model as its makers serve it" if len(entry.grid.baseline) else ""
    yield f"{mark}the best layer of a task, chosen on these scores{shipped}."
    if any(math.isfinite(entry.at(layer, task).error) for layer, task in entry.known):
        yield "± one standard error."

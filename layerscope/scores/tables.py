"""Scores as tables: a row for each model, of one model its layers by task or its tasks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

from layerscope.core.errors import count
from layerscope.scores.grids import MIN_SHARE, Grid, Score, summary_row
from layerscope.scores.naming import FEW, SHIPPED, SITE, VARIANT, Unit, named_layers, one_model, series_name, site_name
from layerscope.show.document import EMPTY, MARK, Cell, Column, Row, Table, columns

if TYPE_CHECKING:
    from layerscope.scores.evaluation import Evaluation


AVERAGE = "average"
SHOWN = {
    "first": "first", "mean_over_layers": "mean", "best": "best", "last": "last", "oracle": "oracle",
    "baseline": SHIPPED,
}  # fmt: skip
"""Columns of a summary and their headings."""
HEADER = ",".join([*VARIANT, "layer"])
"""What every CSV of scores begins with."""


def summary_table(known: Sequence[Grid], evaluation: Evaluation, unit: Unit, title: str, shapes: bool = True) -> Table:
    """Return a row a model, site and pooling; without its shapes where there is no room for them."""
    found = [summary_row(entry) for entry in known]
    shown = [name for name in SHOWN if any(math.isfinite(row.get(name, math.nan)) for row in found)]
    shapes &= any(len(entry.complete) > 1 for entry in known)
    layers = evaluation.scores[evaluation.scores["kind"] == "layer"]
    several = [key for key in SITE if layers[key].nunique(dropna=False) > 1] if one_model(evaluation.scores) else []
    heading = ", ".join(several) or "model" if len(known) > 1 else "layers"
    rows = []
    for row, entry in zip(found, known, strict=True):
        name = _name(row, evaluation).removesuffix(" pooling" if "pooling" in heading else "")
        cells = [Cell(name if len(known) > 1 else named_layers(list(entry.complete.index)).partition(" ")[2])]
        for column in shown:
            value = row.get(column, math.nan)
            layer = f"({row['best_layer']})" if column == "best" and value == value else ""
            cells.append(Cell(unit.number(value), layer, value))
        line = tuple(entry.average) if len(entry.average) > 1 else ()
        rows.append(Row((*cells, *([Cell("", shape=line)] if shapes else []))))
    titles = [Column(heading, "left"), *columns(SHOWN[name] for name in shown)]
    narrow = (summary_table(known, evaluation, unit, title, shapes=False),) if shapes else ()
    titles += [Column("by depth", "left")] if shapes else []
    return Table(title, tuple(titles), tuple(rows), tuple(_legend_of(known, evaluation)), narrow, name="summary")


def _name(about: dict[str, Any], evaluation: Evaluation) -> str:
    """Return what tells a row from the others: site and pooling, and the model where there are several."""
    own = site_name(about, evaluation.scores) if one_model(evaluation.scores) else ""
    return own or series_name(about, evaluation.scores)


def _legend_of(known: Sequence[Grid], evaluation: Evaluation) -> Iterator[str]:
    embedded = any(0 in entry.complete.index for entry in known)
    yield (
        "In parentheses the layer. Means run over the tasks present at every layer; the oracle takes each task's own "
        f"best layer{'; layer 0, the embedding output, is no candidate for either' if embedded else ''}."
    )
    alike: dict[str, list[str]] = {}
    for entry in known:
        tasks, missing = entry.complete.shape[1], entry.missing
        facts = f"{named_layers([int(layer) for layer in entry.complete.index])} on {count(tasks, 'task')}"
        if entry.left_out:
            facts += f"; left out with scores on fewer than {entry.needed} tasks: {named_layers(entry.left_out)}"
        facts += f"; {missing} of {entry.scores.size} scores missing" if missing else ""
        alike.setdefault(facts, []).append(_name(entry.about, evaluation))
    for facts, names in alike.items():
        named = f"{len(names)} of {len(known)}" if len(names) > FEW else " and ".join(names)
        yield f"{named}: {facts}."


def by_layer(entry: Grid, unit: Unit, title: str) -> Table:
    """Return a row for each layer, the best of each task marked, and one for the model as shipped."""
    tasks, average, several = entry.tasks, entry.average, len(entry.layers) > 1
    best = {task: entry.best_on(task) for task in tasks}
    rows = []
    for layer in [*entry.layers, *([None] if len(entry.baseline) else [])]:
        mean = entry.shipped if layer is None else average.get(layer, math.nan)
        cells = [_cell(Score(mean), unit, layer is not None and layer == entry.best)] if len(tasks) > 1 else []
        cells += [_cell(entry.at(layer, task), unit, layer is not None and best[task] == layer) for task in tasks]
        name = Cell(SHIPPED, value=entry.layers[-1] + 1) if layer is None else Cell(str(layer), value=layer)
        rows.append(Row((name, *cells), quiet=layer is None))
    titles = [Column(AVERAGE, "decimal", tuple(average) if several else ())] if len(tasks) > 1 else []
    titles += [Column(task, "decimal", tuple(entry.scores[task]) if several else ()) for task in tasks]
    narrow = (_by_task(entry, unit, title, shapes=several),)
    legend = tuple(_legend(entry, f"{MARK} "))
    return Table(title, (Column("layer"), *titles), tuple(rows), legend, narrow, name="by-task")


def _by_task(entry: Grid, unit: Unit, title: str, shapes: bool) -> Table:
    """Return a row for each task, without its shape where there is no room for it."""
    shipped = bool(len(entry.baseline))
    titles = [*columns(("first", "best", "last", *([SHIPPED] if shipped else [])))]
    first, last, rows = entry.layers[0], entry.depth, []
    for task in entry.tasks:
        best = entry.best_on(task)
        cell = EMPTY if best is None else _cell(entry.at(best, task), unit, marked=False)
        found = EMPTY if best is None else Cell(f"{cell.text} {cell.detail}".strip(), f"({best})")
        ends = [Cell(unit.number(entry.at(layer, task).value)) for layer in (first, last)]
        more = [Cell(unit.number(entry.at(None, task).value))] if shipped else []
        line = [Cell("", shape=tuple(entry.scores[task]))] if shapes else []
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


def _legend(entry: Grid, mark: str) -> Iterator[str]:
    shipped = f"; {SHIPPED}: the model with its own pooling, prompts and normalisation" if len(entry.baseline) else ""
    yield f"{mark}the best layer of a task, chosen on these scores{shipped}."
    if entry.has_errors:
        yield "± one standard error."


def wide_csv(evaluation: Evaluation, min_share: float = MIN_SHARE) -> str:
    """Return layer × task as a CSV of all models: model, revision, site, pooling, layer, a column a task, average.

    The model as shipped has one row, `as shipped` instead of a layer, after the last of its layers. An average runs
    over the tasks that every layer has; that of the model as shipped is empty where its sites and poolings differ in
    these tasks.
    """
    tasks = list(evaluation.scores.loc[evaluation.scores["kind"] == "layer", "task"].unique())
    models: dict[tuple[Any, ...], list[Grid]] = {}
    for grid in evaluation.grids(min_share):
        models.setdefault((grid.about["model"], grid.about["revision"]), []).append(grid)
    rows: list[list[Any]] = []
    for model, grids in models.items():
        for grid in grids:
            scores, average = grid.scores.reindex(columns=tasks), grid.average
            rows += [[*grid.about.values(), layer, *scores.loc[layer], average.get(layer)] for layer in scores.index]
        if len(shipped := grids[0].baseline):
            alike = len({frozenset(grid.complete.columns) for grid in grids}) == 1
            mean = grids[0].shipped if alike else None
            rows.append([*model, None, None, SHIPPED, *shipped.reindex(tasks), mean])
    frame = pd.DataFrame(rows, columns=[*VARIANT, "layer", *tasks, AVERAGE])
    return str(frame.to_csv(index=False, lineterminator="\r\n"))

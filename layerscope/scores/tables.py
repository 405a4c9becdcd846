"""Scores as tables: a row for each model, of one model its layers by task or its tasks."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pandas as pd

from layerscope.core.errors import count, listed
from layerscope.scores.grids import MIN_SHARE, Grid, Score, summary_row
from layerscope.scores.naming import FEW, SHIPPED, SITE, VARIANT, Unit, named_layers
from layerscope.show.document import EMPTY, MARK, Cell, Column, Row, Table, columns, row, words

if TYPE_CHECKING:
    from layerscope.scores.evaluation import Evaluation


AVERAGE = "average"
SHOWN = {
    "first": "first", "mean_over_layers": "mean", "best": "best", "last": "last", "oracle": "oracle",
    "baseline": SHIPPED,
}  # fmt: skip
"""Columns of a summary and their headings."""
MOST_WEIGHTS = 3
HEADER = ",".join([*VARIANT, "layer"])
"""What every CSV of scores begins with."""


def summary_table(grids: Sequence[Grid], title: str) -> Table:
    """Return a row a model, site and pooling; without its shapes where there is no room for them."""
    summaries = [summary_row(grid) for grid in grids]
    shown = [name for name in SHOWN if any(_is_known(values.get(name)) for values in summaries)]
    heading = _heading(grids)
    suffix = " pooling" if "pooling" in heading else ""
    rows = []
    for values, grid in zip(summaries, grids, strict=True):
        name = named_layers(grid.complete.index).partition(" ")[2]
        if len(grids) > 1:
            name = _name(grid).removesuffix(suffix)
        cells = [_summary_cell(column, values, grid.unit) for column in shown]
        shape = tuple(grid.average) if len(grid.average) > 1 else ()
        rows.append(Row((Cell(name), *cells, Cell("", shape=shape))))
    titles = (
        Column(heading, "left"),
        *columns(SHOWN[name] for name in shown),
        Column("by depth", "left"),
    )
    table = Table(title, titles, tuple(rows), tuple(_legend_of(grids)), name="summary")
    return _with_shapes(table, any(len(grid.complete) > 1 for grid in grids))


def _heading(grids: Sequence[Grid]) -> str:
    """Return what tells the rows of a summary apart."""
    first, *others = grids
    if not others:
        return "layers"
    several = [key for key in SITE if first.layer_rows[key].nunique(dropna=False) > 1]
    return ", ".join(several) if first.one_model and several else "model"


def _is_known(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def _summary_cell(column: str, values: Mapping[str, Any], unit: Unit) -> Cell:
    value = values.get(column, math.nan)
    layer = f"({values['best_layer']})" if column == "best" and _is_known(value) else ""
    return Cell(unit.number(value), layer, value)


def _with_shapes(table: Table, shown: bool) -> Table:
    """Return a table whose last column has shapes; without it where none is shown or there is no room."""
    rows = tuple(replace(row, cells=row.cells[:-1]) for row in table.rows)
    narrow = replace(table, columns=table.columns[:-1], rows=rows)
    return replace(table, narrow=(narrow,)) if shown else narrow


def _name(grid: Grid) -> str:
    return (grid.one_model and grid.site) or grid.name


def _legend_of(grids: Sequence[Grid]) -> Iterator[str]:
    embedded = ""
    if any(0 in grid.complete.index for grid in grids):
        embedded = "; layer 0, the embedding output, is not a candidate for either"
    yield (
        "Layers are in parentheses. Means run over the tasks present at every layer; the oracle takes each task's own "
        f"best layer{embedded}."
    )
    alike: dict[str, list[str]] = {}
    for grid in grids:
        layers, tasks = named_layers(grid.complete.index), count(grid.complete.shape[1], "task")
        facts = f"{layers} on {tasks}"
        if grid.left_out:
            facts += f"; left out with scores on fewer than {grid.needed} tasks: {named_layers(grid.left_out)}"
        if grid.missing:
            facts += f"; {grid.missing} of {grid.scores.size} scores missing"
        alike.setdefault(facts, []).append(_name(grid))
    for facts, names in alike.items():
        named = f"{len(names)} of {len(grids)}" if len(names) > FEW else " and ".join(names)
        yield f"{named}: {facts}."


def by_layer(grid: Grid, title: str) -> Table:
    """Return a row for each layer, the best of each task marked, and one for the model as shipped."""
    unit, tasks = grid.unit, grid.tasks
    best = {task: grid.best_on(task) for task in tasks}
    has_average, several = len(tasks) > 1, len(grid.layers) > 1
    rows = []
    for layer in grid.layers:
        cells = [Cell(str(layer), value=layer)]
        if has_average:
            mean = Score(grid.average.get(layer, math.nan))
            cells.append(_cell(mean, unit, layer == grid.best))
        cells += [_cell(grid.at(layer, task), unit, best[task] == layer) for task in tasks]
        rows.append(Row(tuple(cells)))
    for order, name in enumerate(grid.beside, start=grid.layers[-1] + 1):
        cells = [Cell(name or SHIPPED, value=order)]
        if has_average:
            cells.append(_cell(Score(grid.mean(name)), unit))
        cells += [_cell(grid.at(name, task), unit) for task in tasks]
        rows.append(Row(tuple(cells), quiet=True))
    series = {AVERAGE: grid.average} if has_average else {}
    series |= {task: grid.scores[task] for task in tasks}
    titles = [Column("layer")]
    for name, values in series.items():
        titles.append(Column(name, "decimal", tuple(values) if several else ()))
    narrow = _with_shapes(_by_task(grid, title), several)
    legend = tuple(_legend(grid, f"{MARK} "))
    return Table(title, tuple(titles), tuple(rows), legend, (narrow,), name="by-task")


def _by_task(grid: Grid, title: str) -> Table:
    """Return a row for each task, with its shape."""
    unit, has_shipped = grid.unit, len(grid.baseline) > 0
    rows = []
    for task in grid.tasks:
        best, best_cell = grid.best_on(task), EMPTY
        if best is not None:
            cell = _cell(grid.at(best, task), unit)
            best_cell = Cell(f"{cell.text} {cell.detail}".strip(), f"({best})")
        first, last, shipped = (
            unit.number(grid.at(layer, task).value) for layer in (grid.layers[0], grid.depth, None)
        )
        shape = Cell("", shape=tuple(grid.scores[task]))
        rows.append(row(task, first, best_cell, last, *[shipped] * has_shipped, shape))
    titles = (
        Column("task", "left"),
        *columns(("first", "best", "last", *[SHIPPED] * has_shipped)),
        Column("by layer", "left"),
    )
    return Table(title, titles, tuple(rows), tuple(_legend(grid, "In parentheses: ")))


FIXED = (
    "Means of layers with equal weights. Mixes are learned, and have a gain, only on tasks of linear-probe and "
    "token-probe: elsewhere no labels are set aside to learn from, or, in mteb's classification, only a few, "
    "different in each round."
)
"""How to read a table of fixed mixes."""


LEARNED = (
    "Gain: over one layer, the one of the lowest log-loss, which need not be the one of the highest score, mix and "
    "layer both chosen on samples that do not judge them; ± its standard error, paired. Layers: those with the "
    "largest weights, learned on all samples."
)
"""How to read a table of learned mixes."""


def mixes_tables(grid: Grid, title: str) -> Iterator[Table]:
    """Yield for each task a row for each mix of layers: score, gain over the best single layer, and its layers."""
    titles = Column("mix", "left"), *columns(("score", "gain"), "decimal"), Column("layers", "left")
    for order, (task, mixes) in enumerate(grid.mixes.groupby("task", sort=False)):
        rows = [_mix_row(grid, str(task), mix) for mix in mixes.to_dict(orient="records")]
        legend = LEARNED if mixes["gain"].notna().any() else FIXED
        named = f" of {task}" if len(grid.tasks) > 1 else ""
        # a page looks for the name, so that no task's name may stand in it
        name = f"mixes-{order}" if order else "mixes"
        yield Table(f"Mixes of layers{named}{title}", titles, tuple(rows), (legend,), name=name)


def _mix_row(grid: Grid, task: str, mix: Mapping[Any, Any]) -> Row:
    gain = EMPTY
    if math.isfinite(mix["gain"]):
        gain = grid.unit.cell(mix["gain"], mix["gain_error"], sign=True)
        gain = replace(gain, more=(("stderr", mix["gain_error"]),))
    score = _cell(grid.at(mix["mix"], task), grid.unit)
    return Row((words(mix["mix"]), score, gain, words(_weighed(mix["weights"]))))


def _weighed(weights: str | None) -> str:
    """Return the layers of a mix, largest weights first: of `3=0.3,5=0.7` `5 (0.70), 3 (0.30)`."""
    pairs = [text.partition("=") for text in (weights or "–").split(",")]
    if not any(weight for *_, weight in pairs):  # all are equal
        return ", ".join(layer for layer, *_ in pairs)
    largest = sorted(pairs, key=lambda pair: -float(pair[2]))
    named = [f"{layer} ({float(weight):.2f})" for layer, _, weight in largest[:MOST_WEIGHTS]]
    return ", ".join(named) + (" …" if len(pairs) > MOST_WEIGHTS else "")


def _cell(score: Score, unit: Unit, marked: bool = False) -> Cell:
    errors = {"stderr": score.stderr, "low": score.low, "high": score.high}
    more = tuple((name, value) for name, value in errors.items() if math.isfinite(value))
    return replace(unit.cell(score.value, score.error), marked=marked, more=more)


def _legend(grid: Grid, mark: str) -> Iterator[str]:
    shipped = ""
    if len(grid.baseline):
        shipped = f"; {SHIPPED}: the model with its own pooling, prompts and normalisation"
    aside = ", layer 0 aside" if 0 in grid.layers else ""
    yield f"{mark}the best layer of a task{aside}, chosen on these scores{shipped}."
    if grid.rows[["stderr", "low"]].notna().any(axis=None):
        yield "± one standard error."
    has_error = grid.rows[["stderr", "low"]].notna().any(axis=1)
    without = [task for task in grid.tasks if not has_error[grid.rows["task"] == task].any()]
    if without:
        yield f"No ± for {listed(without)}: what each sample contributes to the score is unknown."


def wide_csv(evaluation: "Evaluation", min_share: float = MIN_SHARE) -> str:
    """Return layer × task as a CSV of all models: model, revision, site, pooling, layer, a column a task, average.

    A mix of layers has its name instead of a layer. The model as shipped has one row, `as shipped`
    instead of a layer, after the last of its layers. An average runs over the tasks that every
    layer has; that of the model as shipped is empty where its sites and poolings differ in these
    tasks.
    """
    by_kind = evaluation.scores.groupby("kind", sort=False)["task"].unique()
    tasks = list(by_kind["layer"])
    models: dict[tuple[Any, ...], list[Grid]] = {}
    for grid in evaluation.grids(min_share):
        models.setdefault((grid.about["model"], grid.about["revision"]), []).append(grid)
    rows = list[list[Any]]()
    for model, grids in models.items():
        for grid in grids:
            about, scores = grid.about.values(), grid.scores.reindex(columns=tasks)
            for layer in scores.index:
                rows.append([*about, layer, *scores.loc[layer], grid.average.get(layer)])
            for mix in filter(None, grid.beside):
                values = [grid.at(mix, task).value for task in tasks]
                rows.append([*about, mix, *values, grid.mean(mix)])
        shipped = grids[0].baseline
        if len(shipped):
            is_alike = len({frozenset(grid.complete.columns) for grid in grids}) == 1
            mean = grids[0].shipped if is_alike else None
            rows.append([*model, None, None, SHIPPED, *shipped.reindex(tasks), mean])
    frame = pd.DataFrame(rows, columns=[*VARIANT, "layer", *tasks, AVERAGE])
    return str(frame.to_csv(index=False, lineterminator="\r\n"))

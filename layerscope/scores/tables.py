"""Scores as tables: a row a model, of one model its layers by task, mixes, correlations and rules.

Tables show scores in percent where all of them are shares, else in their own unit, with a standard
error where it is known. The best layer of a model, or of a task, is marked; layer 0 is never one,
as it has run no block.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pandas as pd

from layerscope.core import count, listed, spans
from layerscope.scores.grids import Grid, summary_row
from layerscope.scores.naming import SHIPPED, VARIANT, Unit, decimal, measured_name
from layerscope.scores.rules import by_family
from layerscope.show.document import (
    MARK,
    Cell,
    Column,
    Table,
    columns,
    row,
    words,
)

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
LETTERS = {"spearman": "ρ", "kendall": "τ", "pearson": "r", "dcor": "dCor"}
SUMMARY = (
    "Layers are in parentheses. Means run over the tasks present at every layer; the oracle takes each task's own best "
    "layer; layer 0, the embedding output, is not a candidate."
)
CORRELATIONS = (
    "Correlation by layer with the mean score over tasks: Spearman's ρ, Kendall's τ, Pearson's r, distance correlation "
    "(no sign, above 0 for noise). Intervals (95 %) resample tasks, layers held fixed; of several models the mean."
)
LEARNED = (
    "Gain: over one layer, the one of the lowest log-loss, which need not be the one of the highest score, mix and "
    "layer both chosen on samples that do not judge them; ± its standard error, paired."
)


def summary_table(grids: Sequence[Grid]) -> Table:
    """Return a row for each model, site and pooling.

    Columns are the scores of the first layer, of the best and of the last, their mean, what the best
    layer of each task would give, and the model as shipped; those that no model has are left out.
    """
    unit = grids[0].unit
    summaries = pd.DataFrame(map(summary_row, grids)).reindex(columns=SHOWN)
    summaries = summaries.dropna(axis=1, how="all")
    rows = []
    legend = [SUMMARY]
    for grid, (_, values) in zip(grids, summaries.iterrows(), strict=True):
        cells = []
        for name, value in values.items():
            detail = f"({grid.best})" if name == "best" else ""
            cells.append(unit.cell(value, detail=detail))
        rows.append(row(words(grid.name), *cells))
        if grid.left_out:
            needed = count(grid.needed, "task")
            left_out = spans(grid.left_out, "layer")
            legend.append(
                f"{grid.name}: left out with scores on fewer than {needed}: {left_out}."
            )
    titles = Column("model", "left"), *columns(SHOWN[name] for name in summaries)
    title = f"Scores by layer{unit.title}"
    return Table(title, titles, tuple(rows), tuple(legend), name="summary")


def by_layer(grid: Grid) -> Table:
    """Return a row for each layer, the best of each task marked, and one for the model as shipped.

    Of several tasks the first column is the average over those that every layer has.
    """
    unit = grid.unit
    tasks = grid.tasks
    has_average = len(tasks) > 1
    best = grid.best
    best_on = {task: grid.best_on(task) for task in tasks}
    rows = []
    for layer in grid.layers:
        cells = []
        if has_average:
            mean = unit.cell(grid.average.get(layer, math.nan))
            cells.append(replace(mean, marked=layer == best))
        for task in tasks:
            cell = unit.cell(*grid.at(layer, task))
            cells.append(replace(cell, marked=layer == best_on[task]))
        rows.append(row(Cell(str(layer), value=layer), *cells))
    if len(grid.baseline):
        cells = [unit.cell(grid.shipped)] if has_average else []
        cells += [unit.cell(*grid.at(None, task)) for task in tasks]
        name = Cell(SHIPPED, value=grid.layers[-1] + 1)
        rows.append(row(name, *cells, quiet=True))
    heads = [AVERAGE, *tasks] if has_average else tasks
    title = "Layers by task"
    if grid.place:
        title += f" · {grid.place}"
    legend = f"{MARK} the best layer of a task, layer 0 aside, chosen on these scores"
    if any("±" in cell.detail for one in rows for cell in one.cells):
        legend += "; ± one standard error"
    return Table(
        f"{title}{unit.title}",
        (Column("layer"), *columns(heads, "decimal")),
        tuple(rows),
        (f"{legend}.",),
        name="by-task",
    )


def mixes_table(grid: Grid) -> Table:
    """Return a row for each task and mix of layers: its score, and what it gains over the best single layer."""
    rows = []
    for mix in grid.mixes.to_dict(orient="records"):
        score = grid.unit.cell(*grid.at(mix["mix"], mix["task"]))
        gain = grid.unit.cell(mix["gain"], mix["gain_error"], sign=True)
        rows.append(row(words(mix["task"]), words(mix["mix"]), score, gain))
    heads = *columns(("task", "mix"), "left"), *columns(("score", "gain"), "decimal")
    title = f"Mixes of layers{grid.unit.title}"
    return Table(title, heads, tuple(rows), (LEARNED,), name="mixes")


def correlation_table(correlations: pd.DataFrame) -> Table:
    """Return a row for each metric and corpus, with a column for each statistic.

    A correlation is the mean over the revisions of a model and then over models; an interval is
    shown where there is one model, as it says nothing of others.
    """
    names = correlations.apply(measured_name, axis=1)
    rows = correlations.assign(name=names, corpus=correlations["corpus"].fillna(""))
    if rows["model"].nunique() > 1:  # intervals are of one model
        rows = rows.assign(low=math.nan, high=math.nan)
    keys = ["name", "corpus", "statistic"]
    numbers = ["estimate", "low", "high"]
    by_model = rows.groupby([*keys, "model"], sort=False)[numbers].mean()
    means = by_model.groupby(keys, sort=False).mean()
    lines = []
    for (name, corpus), of_metric in means.groupby(keys[:2], sort=False):
        cells = map(_correlation_cell, *of_metric.to_numpy().T)
        lines.append(row(words(name), words(corpus), *cells))
    letters = [LETTERS[name] for name in rows["statistic"].unique()]
    heads = *columns(("metric", "on"), "left"), *columns(letters)
    tasks, layers = rows[["tasks", "layers"]].max()
    title = (
        f"Metrics and scores by layer · {count(tasks, 'task')}, {layers} layers at most"
    )
    return Table(title, heads, tuple(lines), (CORRELATIONS,), name="correlations")


def _correlation_cell(estimate: float, low: float, high: float) -> Cell:
    """Return a correlation, and the interval it lies in where that is known."""
    text = decimal(estimate, 2, sign=True)
    if not math.isfinite(low):
        return Cell(text, value=float(estimate))
    between = f"({decimal(low, 2, sign=True)} … {decimal(high, 2, sign=True)})"
    ends = ("low", float(low)), ("high", float(high))
    return Cell(text, between, float(estimate), more=ends)


def rule_table(table: pd.DataFrame, unit: Unit) -> Table:
    """Return a row for each rule without labels, those that gain most first.

    `table` is that of `rules_table`; each family of models counts alike.
    """
    means = by_family(table).groupby(level="rule").mean()
    means = means.sort_values("gain", ascending=False, kind="stable")
    rows = []
    for rule, (gain, regret) in means.iterrows():
        cells = unit.cell(gain, sign=True), unit.cell(regret)
        rows.append(row(words(rule), *cells))
    legend = (
        "Gain: over the last layer. Regret: how much more the best layer scores. Means over the checkpoints of each "
        f"model, over the models of each family, then over families ({listed(list(table['family'].unique()))}). "
        f"Nothing was held out: the best of {len(means)} rules looks better here than it is."
    )
    title = "Rules without labels"
    if unit.percent:
        title += ", in points"
    heads = Column("rule", "left"), *columns(("gain", "regret"))
    return Table(title, heads, tuple(rows), (legend,), name="rules")


def wide_csv(evaluation: "Evaluation") -> str:
    """Return layer × task as a CSV of all models: model, revision, site, pooling, layer, average, a column a task.

    A mix of layers has its name instead of a layer, the model as shipped `as shipped`. An average
    runs over the tasks that every layer has.
    """
    parts = []
    for grid in evaluation.grids():
        rows = grid.rows.sort_values("layer", kind="stable")
        names = rows["layer"].astype(object).fillna(rows["mix"]).fillna(SHIPPED)
        named = rows.assign(layer=names)
        by_task = named.pivot(index="layer", columns="task", values="score")
        by_task = by_task.loc[names.unique(), grid.tasks]
        average = by_task[list(grid.complete)].mean(axis=1, skipna=False)
        by_task.insert(0, AVERAGE, average.drop([*grid.left_out]))
        about = pd.DataFrame(grid.about, index=by_task.index)
        parts.append(about.join(by_task).reset_index())
    frame = pd.concat(parts)
    first = [*VARIANT, "layer"]
    frame = frame[[*first, *frame.columns.drop(first)]]
    return str(frame.to_csv(index=False, lineterminator="\r\n"))

"""Scores as tables: a row a model, of one model its layers by task, mixes, correlations and rules."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

from layerscope.core.errors import count, listed, spans
from layerscope.scores.grids import Grid, Score, summary_row
from layerscope.scores.naming import SHIPPED, VARIANT, Unit, decimal, measured_name
from layerscope.scores.rules import by_family
from layerscope.show.document import (
    EMPTY,
    MARK,
    Cell,
    Column,
    Row,
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
MOST_WEIGHTS = 3
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
    "layer both chosen on samples that do not judge them; ± its standard error, paired. Layers: those with the "
    "largest weights, learned on all samples."
)


def summary_table(grids: Sequence[Grid]) -> Table:
    """Return a row for each model, site and pooling."""
    unit, summaries = grids[0].unit, [summary_row(grid) for grid in grids]
    shown = [
        name
        for name in SHOWN
        if any(math.isfinite(values.get(name, math.nan)) for values in summaries)
    ]
    rows, legend = [], [SUMMARY]
    for grid, values in zip(grids, summaries, strict=True):
        cells = []
        for name in shown:
            layer = f"({values.get('best_layer')})" if name == "best" else ""
            cells.append(unit.cell(values.get(name), detail=layer))
        rows.append(row(words(grid.name), *cells))
        legend += _gaps(grid)
    titles = Column("model", "left"), *columns(SHOWN[name] for name in shown)
    return Table(
        f"Scores by layer{unit.title}",
        titles,
        tuple(rows),
        tuple(legend),
        name="summary",
    )


def _gaps(grid: Grid) -> list[str]:
    """Return the line on what a model's averages leave out, if they do."""
    facts = []
    if grid.left_out:
        left_out = spans(grid.left_out, "layer")
        facts.append(
            f"left out with scores on fewer than {count(grid.needed, 'task')}: {left_out}"
        )
    if grid.missing:
        facts.append(f"{grid.missing} of {grid.scores.size} scores missing")
    return [f"{grid.name}: {'; '.join(facts)}."] if facts else []


def by_layer(grid: Grid) -> Table:
    """Return a row for each layer, the best of each task marked, and one for the model as shipped."""
    unit, tasks = grid.unit, grid.tasks
    has_average = len(tasks) > 1
    best = {task: grid.best_on(task) for task in tasks}
    rows = []
    for layer in grid.layers:
        cells = [
            _score_cell(unit, grid.at(layer, task), best[task] == layer)
            for task in tasks
        ]
        if has_average:
            mean = Score(grid.average.get(layer, math.nan), math.nan)
            cells.insert(0, _score_cell(unit, mean, layer == grid.best))
        rows.append(Row((Cell(str(layer), value=layer), *cells)))
    if len(grid.baseline):
        cells = [_score_cell(unit, grid.at(None, task)) for task in tasks]
        if has_average:
            cells.insert(0, unit.cell(grid.shipped))
        rows.append(Row((Cell(SHIPPED, value=grid.layers[-1] + 1), *cells), quiet=True))
    has_error = grid.rows[["stderr", "low"]].notna().any(axis=1)
    without = [task for task in tasks if not has_error[grid.rows["task"] == task].any()]
    legend = [
        f"{MARK} the best layer of a task, layer 0 aside, chosen on these scores; ± one standard error."
    ]
    if without:
        legend.append(
            f"No ± for {listed(without)}: what each sample contributes to the score is unknown."
        )
    heads = [AVERAGE] * has_average + tasks
    titles = Column("layer"), *columns(heads, "decimal")
    title = f"Layers by task{unit.title}"
    if grid.place:
        title = f"Layers by task · {grid.place}{unit.title}"
    return Table(title, titles, tuple(rows), tuple(legend), name="by-task")


def _score_cell(unit: Unit, score: Score, marked: bool = False) -> Cell:
    cell = unit.cell(*score)
    return Cell(cell.text, cell.detail, cell.value, marked, more=cell.more)


def mixes_table(grid: Grid) -> Table:
    """Return a row for each task and mix of layers: score, gain over the best single layer, and its layers."""
    rows = []
    for mix in grid.mixes.to_dict(orient="records"):
        gain = EMPTY
        if math.isfinite(mix["gain"]):
            gain = grid.unit.cell(mix["gain"], mix["gain_error"], sign=True)
        score = _score_cell(grid.unit, grid.at(mix["mix"], mix["task"]))
        rows.append(
            row(
                words(mix["task"]),
                words(mix["mix"]),
                score,
                gain,
                _weighed(mix["weights"]),
            )
        )
    heads = (
        *columns(("task", "mix"), "left"),
        *columns(("score", "gain"), "decimal"),
        Column("layers", "left"),
    )
    return Table(
        f"Mixes of layers{grid.unit.title}",
        heads,
        tuple(rows),
        (LEARNED,),
        name="mixes",
    )


def _weighed(weights: str | None) -> Cell:
    """Return the layers of a mix, largest weights first: of `3=0.3,5=0.7` `5 (0.70), 3 (0.30)`."""
    pairs = [text.partition("=") for text in (weights or "–").split(",")]
    if not any(weight for *_, weight in pairs):  # all are equal
        return words(", ".join(layer for layer, *_ in pairs))
    largest = sorted(pairs, key=lambda pair: -float(pair[2]))
    shown = [
        f"{layer} ({float(weight):.2f})" for layer, _, weight in largest[:MOST_WEIGHTS]
    ]
    return words(", ".join(shown) + (" …" if len(pairs) > MOST_WEIGHTS else ""))


def correlation_table(correlations: pd.DataFrame) -> Table:
    """Return a row for each metric and corpus; of several models the mean over revisions and then over models."""
    names = correlations.apply(measured_name, axis=1)
    rows = correlations.assign(name=names, corpus=correlations["corpus"].fillna(""))
    keys = ["name", "corpus", "statistic"]
    by_model = rows.groupby([*keys, "model"], sort=False)[
        ["estimate", "low", "high"]
    ].mean()
    means = by_model.groupby(keys, sort=False).mean()
    statistics = list(rows["statistic"].unique())
    has_intervals = rows["model"].nunique() == 1 and rows["low"].notna().any()
    lines = []
    for (name, corpus), of_metric in means.groupby(["name", "corpus"], sort=False):
        by_statistic = of_metric.droplevel(["name", "corpus"])
        cells = [
            _correlation_cell(by_statistic.loc[each], has_intervals)
            for each in statistics
        ]
        lines.append(row(words(str(name)), words(str(corpus)), *cells))
    counted = f"{count(int(rows['tasks'].max()), 'task')}, {rows['layers'].max()} layers at most"
    heads = (
        *columns(("metric", "on"), "left"),
        *columns(LETTERS[each] for each in statistics),
    )
    title = f"Metrics and scores by layer · {counted}"
    return Table(title, heads, tuple(lines), (CORRELATIONS,), name="correlations")


def _correlation_cell(values: Any, has_interval: bool) -> Cell:
    estimate, low, high = (float(values[name]) for name in ("estimate", "low", "high"))
    if not has_interval or not math.isfinite(low):
        return Cell(decimal(estimate, 2, sign=True), value=estimate)
    between = f"({decimal(low, 2, sign=True)} … {decimal(high, 2, sign=True)})"
    return Cell(
        decimal(estimate, 2, sign=True),
        between,
        estimate,
        more=(("low", low), ("high", high)),
    )


def rule_table(table: pd.DataFrame, unit: Unit) -> Table:
    """Return a row for each rule without labels, those that gain most first."""
    means = by_family(table).groupby(level="rule").mean()
    means = means.sort_values("gain", ascending=False, kind="stable")
    lines = [
        row(words(str(rule)), unit.cell(gain, sign=True), unit.cell(regret))
        for rule, (gain, regret) in means.iterrows()
    ]
    legend = (
        "Gain: over the last layer. Regret: how much more the best layer scores. Means over the checkpoints of each "
        f"model, over the models of each family, then over families ({listed(list(table['family'].unique()))}). "
        f"Nothing was held out: the best of {len(means)} rules looks better here than it is."
    )
    titles = Column("rule", "left"), *columns(("gain", "regret"))
    in_points = ", in points" if unit.percent else ""
    return Table(
        f"Rules without labels{in_points}",
        titles,
        tuple(lines),
        (legend,),
        name="rules",
    )


def wide_csv(evaluation: "Evaluation") -> str:
    """Return layer × task as a CSV of all models: model, revision, site, pooling, layer, average, a column a task.

    A mix of layers has its name instead of a layer, the model as shipped `as shipped`. An average
    runs over the tasks that every layer has.
    """
    parts = []
    for grid in evaluation.grids():
        rows = grid.rows.sort_values("layer", kind="stable")
        names = rows["layer"].astype(object).fillna(rows["mix"]).fillna(SHIPPED)
        by_task = rows.assign(layer=names).pivot(
            index="layer", columns="task", values="score"
        )
        by_task = by_task.loc[names.unique(), grid.tasks]
        average = by_task[list(grid.complete)].mean(axis=1, skipna=False)
        by_task.insert(0, AVERAGE, average.drop([*grid.left_out]))
        parts.append(
            pd.DataFrame(grid.about, index=by_task.index).join(by_task).reset_index()
        )
    frame = pd.concat(parts)
    frame = frame[[*VARIANT, "layer", *frame.columns.drop([*VARIANT, "layer"])]]
    return str(frame.to_csv(index=False, lineterminator="\r\n"))

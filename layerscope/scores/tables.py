"""Scores as tables: a row for each model, of one model its layers by task or its tasks."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pandas as pd

from layerscope.core.errors import count
from layerscope.scores.grids import MIN_SHARE, Grid, Score, summary_row
from layerscope.scores.naming import FEW, SHIPPED, SITE, VARIANT, Unit, named_layers
from layerscope.show.document import EMPTY, MARK, Cell, Column, Row, Table, columns, row

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


def summary_table(known: Sequence[Grid], title: str) -> Table:
    """Return a row a model, site and pooling; without its shapes where there is no room for them."""
    one, several, found = known[0], len(known) > 1, [summary_row(entry) for entry in known]
    shown = [
        name for name in SHOWN if any(math.isfinite(values.get(name, math.nan)) for values in found)
    ]
    keys = (
        [key for key in SITE if one.layer_rows[key].nunique(dropna=False) > 1]
        if one.one_model
        else []
    )
    heading = ", ".join(keys) or "model" if several else "layers"
    rows = []
    for values, entry in zip(found, known, strict=True):
        name = _name(entry).removesuffix(" pooling" if "pooling" in heading else "")
        cells = [Cell(name if several else named_layers(entry.complete.index).partition(" ")[2])]
        for column in shown:
            value = values.get(column, math.nan)
            layer = f"({values['best_layer']})" if column == "best" and value == value else ""
            cells.append(Cell(one.unit.number(value), layer, value))
        line = tuple(entry.average) if len(entry.average) > 1 else ()
        rows.append(Row((*cells, Cell("", shape=line))))
    titles = (
        Column(heading, "left"),
        *columns(SHOWN[name] for name in shown),
        Column("by depth", "left"),
    )
    table = Table(title, titles, tuple(rows), tuple(_legend_of(known)), name="summary")
    return _with_shapes(table, any(len(entry.complete) > 1 for entry in known))


def _with_shapes(table: Table, shown: bool) -> Table:
    """Return a table whose last column has shapes; without it where none is shown or there is no room."""
    rows = tuple(replace(row, cells=row.cells[:-1]) for row in table.rows)
    narrow = replace(table, columns=table.columns[:-1], rows=rows)
    return replace(table, narrow=(narrow,)) if shown else narrow


def _name(entry: Grid) -> str:
    return (entry.one_model and entry.site) or entry.name


def _legend_of(known: Sequence[Grid]) -> Iterator[str]:
    embedded = any(0 in entry.complete.index for entry in known)
    yield (
        "Layers are in parentheses. Means run over the tasks present at every layer; the oracle takes each task's own "
        f"best layer{'; layer 0, the embedding output, is not a candidate for either' if embedded else ''}."
    )
    alike: dict[str, list[str]] = {}
    for entry in known:
        facts = f"{named_layers(entry.complete.index)} on {count(entry.complete.shape[1], 'task')}"
        if entry.left_out:
            facts += f"; left out with scores on fewer than {entry.needed} tasks: {named_layers(entry.left_out)}"
        facts += f"; {entry.missing} of {entry.scores.size} scores missing" if entry.missing else ""
        alike.setdefault(facts, []).append(_name(entry))
    for facts, names in alike.items():
        named = f"{len(names)} of {len(known)}" if len(names) > FEW else " and ".join(names)
        yield f"{named}: {facts}."


def by_layer(entry: Grid, title: str) -> Table:
    """Return a row for each layer, the best of each task marked, and one for the model as shipped."""
    tasks, average, several = entry.tasks, entry.average, len(entry.layers) > 1
    best = {task: entry.best_on(task) for task in tasks}
    rows = []
    names: list[int | str | None] = [*entry.layers, *entry.beside]
    for order, layer in enumerate(names, start=entry.layers[-1] + 1 - len(entry.layers)):
        is_layer = isinstance(layer, int)
        mean = average.get(layer, math.nan) if isinstance(layer, int) else entry.mean(layer)
        cells = (
            [_cell(Score(mean), entry.unit, is_layer and layer == entry.best)]
            if len(tasks) > 1
            else []
        )
        cells += [
            _cell(entry.at(layer, task), entry.unit, is_layer and best[task] == layer)
            for task in tasks
        ]
        name = Cell(SHIPPED if layer is None else str(layer), value=layer if is_layer else order)
        rows.append(Row((name, *cells), quiet=not is_layer))
    series = ({AVERAGE: average} if len(tasks) > 1 else {}) | {
        task: entry.scores[task] for task in tasks
    }
    titles = [
        Column(name, "decimal", tuple(values) if several else ()) for name, values in series.items()
    ]
    narrow, legend = (
        (_with_shapes(_by_task(entry, title), several),),
        tuple(_legend(entry, f"{MARK} ")),
    )
    return Table(title, (Column("layer"), *titles), tuple(rows), legend, narrow, name="by-task")


def _by_task(entry: Grid, title: str) -> Table:
    """Return a row for each task, with its shape."""
    unit, shipped, rows = entry.unit, [SHIPPED] if len(entry.baseline) else [], []
    for task in entry.tasks:
        best = entry.best_on(task)
        cell = EMPTY if best is None else _cell(entry.at(best, task), unit, marked=False)
        found = EMPTY if best is None else Cell(f"{cell.text} {cell.detail}".strip(), f"({best})")
        first, last, *more = (
            unit.number(entry.at(layer, task).value)
            for layer in (entry.layers[0], entry.depth, *[None] * len(shipped))
        )
        rows.append(row(task, first, found, last, *more, Cell("", shape=tuple(entry.scores[task]))))
    titles = (
        Column("task", "left"),
        *columns(("first", "best", "last", *shipped)),
        Column("by layer", "left"),
    )
    return Table(title, titles, tuple(rows), tuple(_legend(entry, "In parentheses: ")))


FIXED = (
    "Means of layers with equal weights. Mixes are learned, and have a gain, only on tasks of linear-probe and "
    "token-probe: elsewhere no labels are set aside to learn from, or, in mteb's classification, only a few, "
    "different in each round."
)
"""How to read a table of fixed mixes."""


def mixes_tables(entry: Grid, title: str) -> Iterator[Table]:
    """Yield for each task a row for each mix of layers: score, gain over the best single layer, and its layers."""
    learned = (
        "Gain: over one layer, the one of the lowest log-loss, which need not be the one of the highest score, mix and "
        "layer both chosen on samples that do not judge them; ± its standard error, paired. Layers: those with the "
        "largest weights, learned on all samples."
    )
    titles = Column("mix", "left"), *columns(("score", "gain"), "decimal"), Column("layers", "left")
    for order, (task, mixes) in enumerate(entry.mixes.groupby("task", sort=False)):
        rows, legend = [], learned if mixes["gain"].notna().any() else FIXED
        for found in mixes.to_dict(orient="records"):
            gain, error, weighed = found["gain"], found["gain_error"], _weighed(found["weights"])
            score = _cell(entry.at(found["mix"], str(task)), entry.unit, marked=False)
            shown = replace(entry.unit.cell(gain, error, sign=True), more=(("stderr", error),))
            shown = shown if math.isfinite(gain) else EMPTY
            rows.append(
                Row(
                    (
                        Cell(found["mix"], value=found["mix"]),
                        score,
                        shown,
                        Cell(weighed, value=weighed),
                    )
                )
            )
        named = f" of {task}" if len(entry.tasks) > 1 else ""
        name = (
            f"mixes-{order}" if order else "mixes"
        )  # a page looks for it, so that no task's name may stand in it
        yield Table(f"Mixes of layers{named}{title}", titles, tuple(rows), (legend,), name=name)


def _weighed(weights: str | None) -> str:
    """Return the layers of a mix, largest weights first: of `3=0.3,5=0.7` `5 (0.70), 3 (0.30)`."""
    pairs = [text.partition("=") for text in (weights or "–").split(",")]
    equal = not any(weight for *_, weight in pairs)
    ordered = pairs if equal else sorted(pairs, key=lambda pair: -float(pair[2]))
    named = [layer if equal else f"{layer} ({float(weight):.2f})" for layer, _, weight in ordered]
    return ", ".join(named if equal else named[:MOST_WEIGHTS]) + " …" * (
        not equal and len(named) > MOST_WEIGHTS
    )


def _cell(score: Score, unit: Unit, marked: bool) -> Cell:
    known = {"stderr": score.stderr, "low": score.low, "high": score.high}
    more = tuple((name, value) for name, value in known.items() if math.isfinite(value))
    return replace(unit.cell(score.value, score.error), marked=marked, more=more)


def _legend(entry: Grid, mark: str) -> Iterator[str]:
    shipped = (
        f"; {SHIPPED}: the model with its own pooling, prompts and normalisation"
        if len(entry.baseline)
        else ""
    )
    yield f"{mark}the best layer of a task, chosen on these scores{shipped}."
    if entry.rows[["stderr", "low"]].notna().any(axis=None):
        yield "± one standard error."


def wide_csv(evaluation: "Evaluation", min_share: float = MIN_SHARE) -> str:
    """Return layer × task as a CSV of all models: model, revision, site, pooling, layer, a column a task, average.

    A mix of layers has its name instead of a layer. The model as shipped has one row, `as shipped`
    instead of a layer, after the last of its layers. An average runs over the tasks that every
    layer has; that of the model as shipped is empty where its sites and poolings differ in these
    tasks.
    """
    tasks = list(evaluation.scores.loc[evaluation.scores["kind"] == "layer", "task"].unique())
    models: dict[tuple[Any, ...], list[Grid]] = {}
    for grid in evaluation.grids(min_share):
        models.setdefault((grid.about["model"], grid.about["revision"]), []).append(grid)
    rows = list[list[Any]]()
    for model, grids in models.items():
        for grid in grids:
            scores, average = grid.scores.reindex(columns=tasks), grid.average
            rows += [
                [*grid.about.values(), layer, *scores.loc[layer], average.get(layer)]
                for layer in scores.index
            ]
            for mix in filter(None, grid.beside):
                values = (grid.at(mix, task).value for task in tasks)
                rows.append([*grid.about.values(), mix, *values, grid.mean(mix)])
        if len(shipped := grids[0].baseline):
            alike = len({frozenset(grid.complete.columns) for grid in grids}) == 1
            mean = grids[0].shipped if alike else None
            rows.append([*model, None, None, SHIPPED, *shipped.reindex(tasks), mean])
    frame = pd.DataFrame(rows, columns=[*VARIANT, "layer", *tasks, AVERAGE])
    return str(frame.to_csv(index=False, lineterminator="\r\n"))

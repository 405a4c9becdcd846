"""Scores by layer and number of dimensions: a table and a heat map for the average and for each task, and in words."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from layerscope.runs.registry import meaning_of
from layerscope.scores.grids import Grid, Key, best_layer
from layerscope.scores.naming import CUTS, Unit
from layerscope.show.document import MARK, Cell, Column, Row, Table, columns
from layerscope.show.plots import HeatMap

ALL = "all"
"""The column of full width."""
NUMBERS = "Numbers: first dimensions of a layer."
PCA = " PCA: its principal components, fitted in folds that do not judge them."


def cut_keys(entry: Grid) -> list[tuple[int, str, int]]:
    """Return every layer at fewer dimensions, by kind, number and layer."""
    known = entry.rows[entry.rows["kind"].isin(CUTS)].drop_duplicates(["kind", "dims"]).sort_values("dims")
    cuts = [(str(kind), int(number)) for kind, number in zip(known["kind"], known["dims"], strict=True)]
    return [(layer, *cut) for kind in CUTS for cut in cuts if cut[0] == kind for layer in entry.layers]


def choosable(entry: Grid) -> tuple[tuple[int, ...], tuple[int | None, ...], tuple[Key, ...]]:
    """Return layers, dimensions (None: all) and keys of what has a score on every task, the shallowest first."""
    found: list[tuple[int, int | None, Key]] = [(int(layer), None, int(layer)) for layer in entry.complete.index]
    prefixes = (key for key in cut_keys(entry) if key[1] == CUTS[0] and key[0] in entry.complete.index)
    found += [(key[0], key[2], key) for key in prefixes if math.isfinite(entry.mean(key))]
    layers, dims, keys = zip(*sorted(found, key=lambda cut: (cut[0], cut[1] or math.inf)), strict=True)
    return layers, dims, keys


def column_of(kind: str, number: int) -> str:
    """Return what a column of fewer dimensions is called."""
    return str(number) if kind == CUTS[0] else f"{number} {kind}"


def by_dims(entry: Grid, task: str | None) -> pd.DataFrame:
    """Return layer × dimensions on a task, None for the average: the first ones, all, and principal components."""
    found: dict[str, dict[str, dict[int, float]]] = {CUTS[0]: {}, ALL: {}, CUTS[1]: {}}
    found[ALL][ALL] = dict(entry.average if task is None else entry.scores[task])
    for key in cut_keys(entry):
        score = entry.mean(key) if task is None else entry.at(key, task).value
        found[key[1]].setdefault(column_of(*key[1:]), {})[key[0]] = score
    scores = pd.DataFrame({name: part for columns in found.values() for name, part in columns.items()})
    return scores.dropna(axis=1, how="all")


def dims_tables(entry: Grid, title: str) -> Iterator[Table]:
    """Yield layers × dimensions for the average and for each task; nothing where no fewer dimensions were judged."""
    for order, (task, scores) in enumerate(_grids(entry)):
        rows = entry.rows[entry.rows["kind"].isin(CUTS) & (entry.rows["task"] == task)]
        legend, errors = f"{MARK} the best layer of a column. {NUMBERS}{_pca(scores)}", rows["stderr"].dropna()
        if len(errors):
            legend += f" One standard error is {entry.unit.number(errors.mean())} on average."
        of, name = "" if task is None else f" of {task}", f"dims-{order}" if order else "dims"
        yield dims_table(f"Layers × dimensions{of}{title}", scores, entry.unit, _best(scores), legend, name)


def dims_table(
    title: str, scores: pd.DataFrame, unit: Unit, marked: Mapping[Any, int | None], legend: str, name: str = "dims"
) -> Table:
    """Return scores as layer × dimensions, one layer of a column marked."""
    rows = []
    for layer, values in scores.iterrows():
        cells = (Cell(unit.number(value), value=value, marked=marked.get(at) == layer) for at, value in values.items())
        rows.append(Row((Cell(str(layer), value=layer), *cells)))
    return Table(title, (Column("layer"), *columns(scores.columns, "decimal")), tuple(rows), (legend,), name=name)


def dims_maps(entry: Grid) -> Iterator[HeatMap]:
    """Yield dimensions × layers for the average and for each task, as colours."""
    unit = entry.unit
    for order, (task, scores) in enumerate(_grids(entry)):
        yield HeatMap(
            title="Layers × dimensions",
            choice=task or "average",
            summary="A heat map: the score of every layer at fewer dimensions.",
            about=meaning_of("score"),
            note=f"○ the best layer. {NUMBERS}{PCA if CUTS[1] in set(entry.rows['kind']) else ''}",
            unit="%" if unit.percent else "",
            name=f"scores_by_dims_{order}",
            corner="dimensions",
            rows=tuple(scores),
            columns=tuple(map(str, scores.index)),
            values=tuple(tuple(unit.scale * scores[column]) for column in scores),
            low=None,
            high=None,
            down="dimensions",
            across="layer",
            rings=tuple(None if layer is None else scores.index.get_loc(layer) for layer in _best(scores).values()),
            texts=tuple(
                tuple(f"layer {layer}, {name} dimensions: {unit.text(value)}" for layer, value in scores[name].items())
                for name in scores
            ),
            shown=tuple(tuple(map(unit.number, scores[column])) for column in scores),
            depth=max(1, entry.depth),
        )


def fewest_in_words(entry: Grid) -> str:
    """Return the fewest first dimensions that lose at most one standard error, if it is known; else the most."""
    scores = by_dims(entry, None)
    best = {name: layer for name, layer in _best(scores).items() if name.isdigit() and layer is not None}
    if entry.best is None or not best:
        return ""
    losses = {name: float(entry.average[entry.best] - scores.loc[layer, name]) for name, layer in best.items()}
    name = next((name for name, loss in losses.items() if loss <= entry.error(entry.best)), [*best][-1])
    return f"; at {name} dimensions {entry.unit.difference(-losses[name])} (layer {best[name]})"


def _grids(entry: Grid) -> Iterator[tuple[str | None, pd.DataFrame]]:
    """Yield scores by dimensions of the average, None, where there are several tasks, and of each task."""
    cut = list(entry.rows.loc[entry.rows["kind"].isin(CUTS), "task"].unique())
    for task in [*([None] if len(cut) > 1 else []), *(task for task in entry.tasks if task in cut)]:
        yield task, by_dims(entry, task)


def _best(scores: pd.DataFrame) -> dict[Any, int | None]:
    return {column: best_layer(scores[column]) for column in scores}


def _pca(scores: pd.DataFrame) -> str:
    return PCA if any(str(name).endswith(CUTS[1]) for name in scores) else ""

"""A comparison as a document: the answer, a map of layers by layers, differences by depth, layers by checkpoints.

Of two runs the document has one pair; of several it has a member for each run beside the first, and
for checkpoints of one model, before them, one for their course.
"""

from collections import defaultdict
from dataclasses import replace

import numpy as np
import pandas as pd

from layerscope.comparison.comparison import Comparison
from layerscope.comparison.findings import (
    SURE,
    Pair,
    alike,
    by_checkpoint,
    by_metric,
    headline,
    largest,
    most_alike,
    pairs,
    shown,
    signed,
    steps,
)
from layerscope.comparison.plots import checkpoint_map, square_map
from layerscope.runs.registry import about, named
from layerscope.show import (
    EMPTY,
    Cell,
    Column,
    Document,
    Section,
    Table,
    columns,
    row,
)
from layerscope.show.numbers import error

BESIDE = "Layers of the first run down, those of the other across."
APART = "How much each metric differs by depth. Nothing here says which run is the better one."
COURSE = (
    "Each layer compared with itself in the first checkpoint, and each metric by layer."
)


def document(comparison: Comparison) -> Document:
    """Return a comparison as it is shown; of several pairs a page has a document for each."""
    members = [_of_pair(pair) for pair in pairs(comparison)]
    if comparison.series:
        members.insert(0, _of_series(comparison))
    first, *others = members
    if others:
        first = replace(first, sections=(), members=tuple(members))
    reasons = [*first.reasons]
    for member in others:
        reasons += member.answer, *member.reasons
    sizes = (
        f"{run.name}: {run.depth} layers, {run.width:,} wide, {run.pooling} pooling"
        for run in comparison.runs
    )
    return replace(
        first,
        reasons=tuple(reasons),
        title=(_name(comparison), comparison.data),
        facts=(f"{comparison.n:,} samples", *sizes),
        parts=sum((member.parts for member in members), ()),
        lead=first.parts[:1],
        notes=tuple(f"Note: {note}" for note in comparison.notes),
        warnings=comparison.notes,
        kind="comparisons",
    )


def _name(comparison: Comparison) -> str:
    """Return the names of two runs, or how many there are."""
    first, second, *more = comparison.runs
    if not more:
        return f"{first.name} and {second.name}"
    kind = "runs"
    if comparison.series:
        kind = "checkpoints"
    return f"{len(comparison.runs)} {kind}"


def _of_series(comparison: Comparison) -> Document:
    """Return the course of a series of checkpoints, and which layer changes most."""
    courses = [*by_checkpoint(comparison)]
    metric, _, to_first = courses[0]
    last = alike(to_first, metric)[:, -1]
    near = np.where(to_first.index == 0, np.nan, last)
    answer = "No similarity of the checkpoints is defined: their states do not vary."
    if np.isfinite(near).any():
        low = int(np.nanargmin(near))
        values = to_first.iloc[:, -1]
        answer = (
            f"From the first to the last checkpoint layer {to_first.index[low]} changes most: "
            f"{named(*comparison.forms[0])} {shown(values.iloc[low])}; the last layer {shown(values.iloc[-1])}."
        )
    maps = tuple(checkpoint_map(*course) for course in courses)
    return Document(
        answer,
        title=(_name(comparison),),
        parts=(_course(*courses[0]),),
        sections=(Section("checkpoints", "By checkpoint", COURSE, maps),),
        kind="series",
        depth=comparison.runs[0].depth,
    )


def _of_pair(pair: Pair) -> Document:
    maps = tuple(square_map(pair, *form) for form in pair.comparison.forms)
    table = _differences(pair)
    return Document(
        headline(pair),
        reasons=(*steps(pair),),
        title=(pair.name,),
        parts=(_nearest(pair), table),
        sections=(
            Section("compared", "Layers across runs", BESIDE, maps),
            Section("differences", "Differences by depth", APART, (table,)),
        ),
        kind="pairs",
        depth=min(pair.a.depth, pair.b.depth),
    )


def _nearest(pair: Pair) -> Table:
    """Return for each layer of the first run the one of the other that is most like it."""
    metric, variant = pair.comparison.forms[0]
    square = pair.square(metric, variant)
    rows = []
    for layer, ring in zip(square.index, most_alike(square, metric), strict=True):
        nearest = [EMPTY, EMPTY]
        if ring is not None:
            value = float(square.loc[layer].iloc[ring])
            nearest = [Cell(str(square.columns[ring])), Cell(shown(value), value=value)]
        rows.append(row(str(layer), *nearest))
    heads = (f"layer of {pair.a.name}", f"most like, of {pair.b.name}")
    titles = columns((*heads, named(metric, variant)))
    return Table("Most alike layers", titles, tuple(rows), name="nearest")


def _course(metric: str, title: str, values: pd.DataFrame) -> Table:
    """Return the first similarity of each layer by checkpoint."""
    rows = []
    for layer, numbers in values.iterrows():
        cells = [Cell(shown(value), value=value) for value in numbers.tolist()]
        rows.append(row(str(layer), *cells))
    heads = columns(("layer", *map(str, values.columns)))
    return Table(title, heads, tuple(rows), name=metric)


def _differences(pair: Pair) -> Table:
    """Return a row for each layer, or pair of layers, and a column for each metric."""
    titles = []
    cells = defaultdict[str, dict[str, Cell]](dict)
    for metric, title, rows in by_metric(pair.differences):
        titles.append(title)
        most = largest(rows)
        for index, entry in rows.iterrows():
            layers = " | ".join(map(str, dict.fromkeys((entry["a"], entry["b"]))))
            value = about(metric).scale * float(entry["value"])
            stderr = about(metric).scale * float(entry["stderr"])
            cell = Cell(signed(value), error(stderr), value, index == most)
            cells[layers][title] = cell
    lines = []
    for layers, by_title in cells.items():
        entries = [by_title.get(title, EMPTY) for title in titles]
        lines.append(row(layers, *entries))
    legend = (
        f"±: one standard error, by sample where both runs keep each sample's values. Marked: the largest difference "
        f"beyond {SURE:.0f} of them, layer 0 aside."
    )
    heads = (Column("layer"), *columns(titles, "decimal"))
    title = f"{pair.b.name} less {pair.a.name}"
    return Table(title, heads, tuple(lines), (legend,), name="differences")

"""A comparison as a document: the answer, a map of layers by layers, differences by depth, layers by checkpoints."""

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

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
)
from layerscope.comparison.plots import checkpoint_map, difference_chart, square_map
from layerscope.runs.registry import named, scale
from layerscope.show.document import (
    EMPTY,
    Cell,
    Column,
    Document,
    Facts,
    Section,
    Table,
    columns,
    row,
)
from layerscope.show.numbers import error

if TYPE_CHECKING:
    from layerscope.comparison.comparison import Comparison, Member

BESIDE = "Layers of the first run down, those of the other across."
APART = "How much each metric differs by depth. Nothing here says which run is the better one."
COURSE = (
    "Each layer compared with itself in the first checkpoint, and each metric by layer."
)


def document(comparison: "Comparison") -> Document:
    """Return a comparison as it is shown; of several pairs a page has a document for each."""
    members = [_of_pair(pair) for pair in pairs(comparison)]
    if comparison.series:
        members.insert(0, _of_series(comparison))
    first, *others = members
    single = not others
    return replace(
        first,
        reasons=tuple(member.answer for member in others),
        title=(_name(comparison), comparison.data),
        facts=(
            f"{comparison.n:,} samples",
            *(f"{run.name}: {_size(run)}" for run in comparison.runs),
        ),
        parts=tuple(part for member in members for part in member.parts),
        lead=first.parts[:1],
        notes=tuple(f"Note: {note}" for note in comparison.notes),
        sections=first.sections if single else (),
        members=() if single else tuple(members),
        warnings=comparison.notes,
        kind="comparisons",
        depth=min(run.depth for run in comparison.runs),
    )


def _name(comparison: "Comparison") -> str:
    """Return the names of two runs, or how many there are."""
    runs = comparison.runs
    if len(runs) == 2:
        return " and ".join(run.name for run in runs)
    return f"{len(runs)} {'checkpoints' if comparison.series else 'runs'}"


def _of_series(comparison: "Comparison") -> Document:
    """Return the course of a series of checkpoints, and which layer changes most."""
    courses = [*by_checkpoint(comparison)]
    metric, _, to_first = courses[0]
    near = np.where(to_first.index == 0, np.nan, alike(to_first, metric)[:, -1])
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
        details=_details(comparison, comparison.runs),
    )


def _of_pair(pair: Pair) -> Document:
    maps = tuple(square_map(pair, *form) for form in pair.comparison.forms)
    table = _differences(pair)
    charts = (
        difference_chart(pair, metric, title, rows)
        for metric, title, rows in by_metric(pair.differences)
        if rows["value"].notna().any()
    )
    return Document(
        headline(pair),
        title=(pair.name,),
        parts=(_nearest(pair), table),
        sections=(
            Section("compared", "Layers across runs", BESIDE, maps),
            Section("differences", "Differences by depth", APART, (*charts, table)),
        ),
        kind="pairs",
        depth=min(pair.a.depth, pair.b.depth),
        details=_details(pair.comparison, (pair.a, pair.b)),
    )


def _details(comparison: "Comparison", runs: "tuple[Member, ...]") -> tuple[Facts]:
    entries = [("data", comparison.data), ("samples", f"{comparison.n:,}")]
    entries.append(("left out", f"{comparison.left_out:,}"))
    for run in runs:
        revision = f", revision {run.revision}" if run.revision else ""
        entries.append(("run", f"{run.name}: {_size(run)}{revision}; {run.path}"))
    return (Facts(tuple(entries)),)


def _size(member: "Member") -> str:
    return f"{member.depth} layers, {member.width:,} wide, {member.pooling} pooling"


def _nearest(pair: Pair) -> Table:
    """Return for each layer of the first run the one of the other that is most like it."""
    metric, variant = pair.comparison.forms[0]
    square = pair.square(metric, variant)
    rows = []
    for number, ring in enumerate(most_alike(square, metric)):
        nearest = [EMPTY, EMPTY]
        if ring is not None:
            value = float(square.iat[number, ring])
            nearest = [Cell(str(square.columns[ring])), Cell(shown(value), value=value)]
        rows.append(row(str(square.index[number]), *nearest))
    heads = columns(
        (
            f"layer of {pair.a.name}",
            f"most like, of {pair.b.name}",
            named(metric, variant),
        )
    )
    return Table("Most alike layers", heads, tuple(rows), name="nearest")


def _course(metric: str, title: str, values: pd.DataFrame) -> Table:
    """Return the first similarity of each layer by checkpoint."""
    rows = (
        row(str(layer), *(Cell(shown(value), value=value) for value in line))
        for layer, line in zip(values.index, values.to_numpy().tolist(), strict=True)
    )
    return Table(
        title, columns(("layer", *map(str, values.columns))), tuple(rows), name=metric
    )


def _differences(pair: Pair) -> Table:
    """Return a row for each layer, or pair of layers, and a column for each metric."""
    titles, cells = [], dict[str, dict[str, Cell]]()
    for metric, title, rows in by_metric(pair.differences):
        titles.append(title)
        most = largest(rows)
        for index, entry in rows.iterrows():
            layers = " | ".join(map(str, dict.fromkeys((entry["a"], entry["b"]))))
            value, stderr = (
                scale(metric) * float(entry[name]) for name in ("value", "stderr")
            )
            cell = Cell(signed(value), error(stderr), value, index == most)
            cells.setdefault(layers, {})[title] = cell
    lines = (
        row(layers, *(of_layer.get(title, EMPTY) for title in titles))
        for layers, of_layer in cells.items()
    )
    legend = (
        f"±: one standard error, by sample where both runs keep each sample's values. Marked: the largest difference "
        f"beyond {SURE:.0f} of them, layer 0 aside."
    )
    heads = (Column("layer"), *columns(titles, "decimal"))
    title = f"{pair.b.name} less {pair.a.name}"
    return Table(title, heads, tuple(lines), (legend,), name="differences")

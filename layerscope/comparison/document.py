"""A comparison as a document: the answer, maps of layers by layers, differences by depth, layers by checkpoints."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from layerscope.comparison.findings import (
    SURE,
    Pair,
    alike,
    as_values,
    candidates,
    checkpoints,
    differences,
    findings,
    headline,
    layer_labels,
    layer_name,
    maps,
    of_variant,
    pairs,
    scale_of,
    shown,
    signed,
    similarity_name,
)
from layerscope.comparison.plots import course, sections, square_map
from layerscope.runs.registry import about
from layerscope.show.document import (
    EMPTY,
    Align,
    Cell,
    Column,
    Document,
    Facts,
    Part,
    Row,
    Sentences,
    Table,
    columns,
    row,
)
from layerscope.show.numbers import error, number
from layerscope.show.plots import HeatMap

if TYPE_CHECKING:
    from layerscope.comparison.comparison import Comparison, Member

MOST_PAIRS = 3
"""Of more pairs than this only the answers are shown: the page has the rest."""


def document(comparison: Comparison) -> Document:
    """Return a comparison as it is shown; of several pairs a page has a document for each."""
    known, single = pairs(comparison), len(comparison.runs) == 2
    answers = [*_course(comparison), *(headline(pair) for pair in known)]
    detailed = known[-1:] if comparison.series else known[:MOST_PAIRS]
    parts: list[Part] = [*_checkpoints(comparison)] if comparison.series else []
    for pair in detailed:
        title = pair.name if parts else ""
        parts += [Sentences(title, tuple(findings(pair))), _map(pair), _differences(pair)]
    more = f"The page that report() writes has maps and differences of all {len(known)} pairs."
    return Document(
        answers[0],
        reasons=tuple(answers[1:]),
        title=(_name(comparison), comparison.data),
        facts=(
            f"{comparison.n:,} samples",
            *(f"{m.name}: {m.depth} layers, {m.width:,} wide, {m.pooling} pooling" for m in comparison.runs),
        ),
        parts=tuple(parts),
        notes=(*([more] if len(known) > len(detailed) else []), *(f"Note: {note}" for note in comparison.notes)),
        sections=tuple(sections(known[0])) if single else (),
        members=() if single else (*_series(comparison), *map(_pair, known)),
        details=(_facts(known[0]),),
        warnings=comparison.notes,
        kind="comparisons",
        depth=min(member.depth for member in comparison.runs),
    )


def _name(comparison: Comparison) -> str:
    """Return what was compared."""
    if len(comparison.runs) == 2:
        return " and ".join(member.name for member in comparison.runs)
    return f"{len(comparison.runs)} {'checkpoints' if comparison.series else 'runs'}"


def _pair(pair: Pair) -> Document:
    """Return one pair of several as a page shows it."""
    return Document(
        headline(pair),
        title=(pair.name,),
        parts=(Sentences("", tuple(findings(pair))),),
        sections=tuple(sections(pair)),
        details=(_facts(pair),),
        warnings=pair.comparison.notes if pair.number == 1 else (),
        kind="pairs",
        depth=min(pair.a.depth, pair.b.depth),
    )


def _series(comparison: Comparison) -> Iterator[Document]:
    """Yield what a page shows of the checkpoints beside their pairs."""
    if comparison.series:
        yield Document(
            " ".join(_course(comparison)),
            title=(_name(comparison),),
            sections=(course(comparison),),
            kind="series",
            depth=comparison.runs[0].depth,
        )


def _facts(pair: Pair) -> Facts:
    """Return what was compared."""
    c = pair.comparison
    counts = (("data", c.data), ("samples", f"{c.n:,}"), ("left out", f"{c.left_out:,}"))
    return Facts((*counts, *(("run", _fact(member)) for member in (pair.a, pair.b))))


def _fact(member: Member) -> str:
    revision = f", revision {member.revision}" if member.revision else ""
    size = f"{member.depth} layers, {member.width:,} wide, {member.pooling} pooling"
    return f"{member.name}: {size}{revision}; {member.path}"


def _map(pair: Pair) -> HeatMap:
    """Return the map that a terminal shows, its title saying which layers are which."""
    metric = pair.comparison.similarities[0]
    title = f"{similarity_name(metric)}: layers of {pair.a.name} down, of {pair.b.name} across"
    return replace(square_map(pair, metric), title=title, low=0.0, high=1.0)


def _differences(pair: Pair) -> Table:
    rows = differences(pair)
    keys = list(dict.fromkeys(zip(rows["metric"], rows["variant"], strict=True)))
    several = {metric for metric, variant in keys if sum(metric == other for other, _ in keys) > 1}
    titles = [
        f"{about(metric).title} {variant}" if metric in several and variant else about(metric).title
        for metric, variant in keys
    ]
    legend = (
        f"±: one standard error, by sample where both runs keep each sample's values. Marked: the largest difference "
        f"beyond {SURE:.0f} of them, layer 0 aside."
    )
    return _by_layer(
        f"{pair.b.name} less {pair.a.name}", titles, [_cells(pair, rows, key) for key in keys], "decimal", (legend,)
    )


def _cells(pair: Pair, rows: pd.DataFrame, key: tuple[str, str | None]) -> dict[str, Cell]:
    """Return a metric's differences by the layers they are of."""
    metric, variant = key
    own = of_variant(rows, metric, variant)
    sure = candidates(own[own["value"].abs() > SURE * own["stderr"]])
    most = sure["value"].abs().idxmax() if len(sure) else None
    cells = {}
    layers = zip(own.iterrows(), layer_labels(own, pair.a), layer_labels(own, pair.b, "_b"), strict=True)
    for (index, found), a, b in layers:
        value, stderr = (scale_of(metric) * float(found[name]) for name in ("value", "stderr"))
        cells[str(a) if a == b else f"{a} | {b}"] = Cell(signed(value), error(stderr), value, index == most)
    return cells


def _by_layer(
    title: str, titles: list[str], found: list[dict[str, Cell]], align: Align, legend: tuple[str, ...] = ()
) -> Table:
    """Return cells by layer as a table, a column for each metric."""
    names = dict.fromkeys(name for cells in found for name in cells)
    rows = (row(name, *(cells.get(name, EMPTY) for cells in found)) for name in names)
    return Table(title, (Column("layer"), *columns(titles, align)), tuple(rows), legend)


def _course(comparison: Comparison) -> Iterator[str]:
    """Yield which layer a series of checkpoints changes most, where that is known."""
    if not comparison.series:
        return
    metric, _, first = next(maps(comparison))
    ends, near = as_values(first)[:, 0], alike(first, metric)[:, 0]
    near = np.where([layer != 0 for layer in first.index], near, np.nan)
    if np.isfinite(near).any():
        low = int(np.nanargmin(near))
        yield (
            f"From the first to the last checkpoint {layer_name(first.index[low])} changes most: "
            f"{similarity_name(metric)} {shown(ends[low])}; the last layer {shown(ends[-1])}."
        )


def _checkpoints(comparison: Comparison) -> Iterator[Table]:
    """Yield layers by checkpoints: similarity to the last one in numbers, each metric's course as a spark line."""
    known, names = list(maps(comparison)), checkpoints(comparison)
    _, title, first = known[0]
    rows = (
        Row((Cell(str(layer)), *(Cell(shown(value), value=value) for value in line)))
        for layer, line in zip(first.index, as_values(first), strict=True)
    )
    yield Table(title, columns(("layer", *names)), tuple(rows))
    courses = [(title, values, scale_of(metric)) for metric, title, values in known if about(metric).needs != "pairs"]
    if courses:
        cells = [
            {
                str(layer): Cell(number(scale * line[-1]), value=scale * line[-1], shape=tuple(map(float, line)))
                for layer, line in zip(values.index, as_values(values), strict=True)
            }
            for _, values, scale in courses
        ]
        title = f"From {names[0]} to {names[-1]}, and the value at the last"
        yield _by_layer(title, [title for title, _, _ in courses], cells, "left")

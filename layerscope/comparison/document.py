"""A comparison as a document: the answer, maps of layers by layers, differences by depth, layers by checkpoints."""

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from layerscope.comparison import findings
from layerscope.comparison.findings import SURE, Pair, by_metric, headline, layer_name, shown
from layerscope.comparison.plots import course, sections, square_map
from layerscope.runs.registry import about, named, scale
from layerscope.show.document import (
    EMPTY,
    Align,
    Cell,
    Column,
    Document,
    Facts,
    Part,
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


def document(comparison: "Comparison") -> Document:
    """Return a comparison as it is shown; of several pairs a page has a document for each."""
    pairs, runs, series = findings.pairs(comparison), comparison.runs, comparison.series
    single = len(pairs) == 1
    course_in_words = [*_course(comparison)] if series else []
    answer, *reasons = [*course_in_words, *map(headline, pairs)]
    checkpoints = [*_checkpoints(comparison)] if series else []
    detailed = pairs[-1:] if series else pairs[:MOST_PAIRS]
    parts: list[Part] = [*checkpoints]
    for pair in detailed:
        title = pair.name if parts else ""
        parts += [Sentences(title, findings.sentences(pair)), _map(pair), _differences(pair)]
    # without checkpoints the map of the first pair, which stands after its sentences
    lead = checkpoints[:1] or parts[1:2]
    more = f"The page has maps and differences of all {len(pairs)} pairs."
    left_out = [more] if len(pairs) > len(detailed) else []
    name = _name(comparison)
    pages = [_series(comparison, name, " ".join(course_in_words))] if series else []
    return Document(
        answer,
        reasons=tuple(reasons),
        title=(name, comparison.data),
        facts=(
            f"{comparison.n:,} samples",
            *(f"{run.name}: {_size(run)}" for run in runs),
        ),
        parts=tuple(parts),
        lead=tuple(lead),
        notes=(*left_out, *(f"Note: {note}" for note in comparison.notes)),
        sections=tuple(sections(pairs[0])) if single else (),
        members=() if single else (*pages, *map(_pair, pairs)),
        details=(_facts(pairs[0]),),
        warnings=comparison.notes,
        kind="comparisons",
        depth=min(run.depth for run in runs),
    )


def _name(comparison: "Comparison") -> str:
    """Return the names of two runs, or how many there are."""
    runs = comparison.runs
    if len(runs) == 2:
        return " and ".join(run.name for run in runs)
    return f"{len(runs)} {'checkpoints' if comparison.series else 'runs'}"


def _series(comparison: "Comparison", name: str, answer: str) -> Document:
    """Return the course of a series of checkpoints as a page shows it."""
    return Document(
        answer,
        title=(name,),
        sections=(course(comparison),),
        kind="series",
        depth=comparison.runs[0].depth,
    )


def _pair(pair: Pair) -> Document:
    return Document(
        headline(pair),
        title=(pair.name,),
        parts=(Sentences("", findings.sentences(pair)),),
        sections=tuple(sections(pair)),
        details=(_facts(pair),),
        warnings=pair.comparison.notes if pair.b is pair.comparison.runs[1] else (),
        kind="pairs",
        depth=min(pair.a.depth, pair.b.depth),
    )


def _facts(pair: Pair) -> Facts:
    c, runs = pair.comparison, []
    for run in (pair.a, pair.b):
        revision = f", revision {run.revision}" if run.revision else ""
        runs.append(("run", f"{run.name}: {_size(run)}{revision}; {run.path}"))
    return Facts(
        (("data", c.data), ("samples", f"{c.n:,}"), ("left out", f"{c.left_out:,}"), *runs)
    )


def _size(member: "Member") -> str:
    return f"{member.depth} layers, {member.width:,} wide, {member.pooling} pooling"


def _map(pair: Pair) -> HeatMap:
    """Return the map that a terminal shows, its title saying which layers are which."""
    metric, variant = pair.comparison.forms[0]
    title = f"{named(metric, variant)}: layers of {pair.a.name} down, of {pair.b.name} across"
    return replace(square_map(pair, metric, variant), title=title, low=0.0, high=1.0)


def _differences(pair: Pair) -> Table:
    titles, cells = [], []
    for metric, variant, several, rows in by_metric(pair.differences):
        largest, column = findings.largest(rows), {}
        for index, entry in rows.iterrows():
            value, stderr = (scale(metric) * float(entry[name]) for name in ("value", "stderr"))
            layers = " | ".join(map(str, dict.fromkeys((entry["a"], entry["b"]))))
            marked = index == largest
            column[layers] = Cell(findings.signed(value), error(stderr), value, marked)
        titles.append(f"{named(metric, variant)} {variant if several and variant else ''}".strip())
        cells.append(column)
    legend = (
        f"±: one standard error, by sample where both runs keep each sample's values. Marked: the largest difference "
        f"beyond {SURE:.0f} of them, layer 0 aside."
    )
    return _by_layer(f"{pair.b.name} less {pair.a.name}", titles, cells, "decimal", (legend,))


def _by_layer(
    title: str,
    titles: list[str],
    cells: list[dict[str, Cell]],
    align: Align,
    legend: tuple[str, ...] = (),
) -> Table:
    """Return cells by layer as a table, a column for each metric."""
    names = dict.fromkeys(name for column in cells for name in column)
    rows = (row(name, *(column.get(name, EMPTY) for column in cells)) for name in names)
    return Table(title, (Column("layer"), *columns(titles, align)), tuple(rows), legend)


def _course(comparison: "Comparison") -> Iterator[str]:
    """Yield which layer a series of checkpoints changes most, where that is known."""
    metric, _, first = next(findings.maps(comparison))
    ends, near = first.to_numpy()[:, 0], findings.alike(first, metric)[:, 0]
    near = np.where([layer != 0 for layer in first.index], near, np.nan)
    if np.isfinite(near).any():
        low = int(np.nanargmin(near))
        yield (
            f"From the first to the last checkpoint {layer_name(first.index[low])} changes most: "
            f"{named(metric, comparison.forms[0][1])} {shown(ends[low])}; the last layer {shown(ends[-1])}."
        )


def _checkpoints(comparison: "Comparison") -> Iterator[Table]:
    """Yield layers by checkpoints: similarity to the last one in numbers, each metric's course as a spark line."""
    maps, names = list(findings.maps(comparison)), findings.checkpoints(comparison)
    _, title, first = maps[0]
    rows = (
        row(str(layer), *(Cell(shown(value), value=value) for value in line))
        for layer, line in zip(first.index, first.to_numpy(), strict=True)
    )
    yield Table(title, columns(("layer", *names)), tuple(rows))
    courses = [
        (title, scale(metric) * map_)
        for metric, title, map_ in maps
        if about(metric).needs != "pairs"
    ]
    if courses:
        cells = [
            {
                str(layer): Cell(number(line[-1]), value=line[-1], shape=tuple(map(float, line)))
                for layer, line in zip(values.index, values.to_numpy(), strict=True)
            }
            for _, values in courses
        ]
        yield _by_layer(
            f"From {names[0]} to {names[-1]}, and the value at the last",
            [t for t, _ in courses],
            cells,
            "left",
        )

"""The plots of a comparison: layers of one run by layers of another, differences by depth, layers by checkpoints."""

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from layerscope.comparison import findings
from layerscope.comparison.findings import Layer, Pair, layer_name, shown
from layerscope.runs.registry import (
    about,
    capital,
    file_name,
    meaning_of,
    named,
    scale,
    titled,
    unit_apart,
)
from layerscope.show.document import EMPTY, Cell, Column, Section, Table, row
from layerscope.show.plots import Axis, Chart, HeatMap, Meaning, Series

if TYPE_CHECKING:
    from layerscope.comparison.comparison import Comparison, Member

BESIDE = "Layers of the first run down, those of the other across."
APART = "How much each metric differs by depth. Nothing here says which run is the better one."
COURSE = "Each layer compared with itself in the last checkpoint and in the one before, and each metric by layer."
RINGS = "○ the layer across that is most like the one down; layer 0 is not a candidate."
WITHIN = "Every two layers of one tower, beside the map across the towers."
MATCHES = "For each layer of the first run the most similar one of the other, and the one at the same depth."
LEAST = 0.05
"""The smallest range of similarities that a scale of colours spans."""
DIFFERENCE = Meaning(
    "The metric of the run named first less that of the other, at the same layer, or where depths differ at the layers "
    "nearest to each other in percent of depth. Bands are one standard error: of the mean difference by sample where "
    "both runs keep each sample's values, else of two independent values.",
    "Above 0: the run named first has more of it. Whether high or low is better differs by metric, model and data.",
    "measured here",
)


def sections(pair: Pair) -> Iterator[Section]:
    """Yield the maps and matching layers of a pair, and how metrics differ."""
    squares = [square_map(pair, *form) for form in pair.comparison.forms]
    yield Section("compared", "Layers across runs", BESIDE, (*squares, _matches(pair)))
    if pair.towers:
        within = (
            _within(pair, run, *form) for form in pair.comparison.forms for run in (pair.a, pair.b)
        )
        yield Section("within", "Layers within each run", WITHIN, tuple(within))
    drawn = (
        _difference(pair, metric, capital(titled(metric, variant, several)), points)
        for metric, variant, several, rows in findings.by_metric(pair.differences)
        if len(points := rows[rows["value"].notna()])
    )
    yield Section("differences", "Differences by depth", APART, tuple(drawn))


def _apart(name: str, other: str) -> str:
    """Return what tells a run's name from the other's: of `minilm (run1)` and `minilm (run2)` the parentheses."""
    model, _, rest = name.partition(" (")
    return rest.removesuffix(")") if rest and other.startswith(f"{model} (") else name


def _within(pair: Pair, run: "Member", metric: str, variant: str) -> HeatMap:
    """Return the similarity of every two layers of one of two towers, on a scale of its own and without rings."""
    own, title = (
        square_map(replace(pair, a=run, b=run), metric, variant),
        capital(named(metric, variant)),
    )
    return replace(
        own,
        title=f"{title} within {run.name}",
        summary=about(metric).meaning,
        low=None,
        high=None,
        note="",
        rings=(),
        aside=("", ()),
        name=f"within_{file_name(metric, variant)}_{run.name}",
        down="layer",
        across="layer",
    )


def square_map(pair: Pair, metric: str, variant: str) -> HeatMap:
    """Return the similarity of every layer of A with every one of B; the most similar of B is ringed."""
    square, name, matches = (
        pair.square(metric, variant),
        named(metric, variant),
        pair.matches(metric, variant),
    )
    words = (
        "" if found.most is None else f"{found.most} ({shown(found.most_value)})"
        for found in matches
    )
    similar = pair.comparison.frame[pair.comparison.frame["kind"] == "similarity"]
    finite = similar.loc[
        (similar["metric"] == metric) & (similar["variant"] == variant), "value"
    ].dropna()
    return HeatMap(
        title=f"{capital(name)} of layers across runs",
        summary=findings.headline(pair),
        about=meaning_of(metric),
        note=RINGS if len(finite) else f"the states of {pair.b.name} do not vary",
        name=f"compared_{file_name(metric, variant)}",
        corner="layer",
        rows=tuple(map(str, square.index)),
        columns=tuple(map(str, square.columns)),
        values=tuple(map(tuple, square.to_numpy().tolist())),
        low=float(finite.min()) if len(finite) else None,
        high=float(finite.max()) if len(finite) else None,
        least=LEAST,
        aside=("most like", tuple(words)),
        down=f"layer of {_apart(pair.a.name, pair.b.name)}",
        across=f"layer of {_apart(pair.b.name, pair.a.name)}",
        rings=tuple(
            None if found.most is None else square.columns.get_loc(found.most) for found in matches
        ),
        square=True,
        upward=True,
        reversed=about(metric).low,
    )


def _difference(pair: Pair, metric: str, title: str, points: pd.DataFrame) -> Chart:
    points, depth = points.reset_index(drop=True), max(pair.a.depth, pair.b.depth)
    layers = points["layer" if pair.a.depth >= pair.b.depth else "layer_b"].astype(float).tolist()
    last = len(points) - 1
    after = (last,) if last and layers[last] == layers[last - 1] else ()
    most = findings.largest(points.drop([*after]))
    what = [] if len(pair.comparison.runs) > 2 else [f"{pair.b.name} less {pair.a.name}"]
    paired = ["paired by sample"] if points["paired"].all() else []
    points["at"] = layers
    line = Series.of(
        points,
        "at",
        "value",
        error="stderr",
        marked=() if most is None else (most,),
        after=after,
        note=" · ".join([*what, *paired, f"N: {points['n'].max():,}"]),
    )
    zero = Series("", (0.0, float(depth)), (0.0, 0.0), mark="guide", tone="muted")
    return Chart(
        title=f"{title}: difference",
        summary=f"{_point(pair, points.iloc[-1])} at the last layer",
        about=DIFFERENCE,
        unit=unit_apart(metric),
        name=f"difference-{metric}",
        sheet="differences",
        x=Axis("layer", whole=True, depth=depth),
        y=Axis("", scale=scale(metric)),
        series=(zero, line),
        overlaid=True,
        marked="the largest difference",
    )


def _point(pair: Pair, point: Any) -> str:
    a, b = layer_name(point["a"]), layer_name(point["b"])
    layers = a if a == b else f"{b} of {pair.b.name} minus {a} of {pair.a.name}"
    return f"{layers}: {findings.difference_text(point)}"


def course(comparison: "Comparison") -> Section:
    """Return maps of layers by checkpoints: similarity to the last and to the one before, then each metric."""
    drawn = []
    steps = dict(
        zip(
            [member.name for member in comparison.runs],
            findings.checkpoints(comparison),
            strict=True,
        )
    )
    for metric, title, values in findings.maps(comparison):
        known, scaled = about(metric), scale(metric) * values.to_numpy()
        finite = scaled[np.isfinite(scaled)]
        drawn.append(
            HeatMap(
                title=title if "checkpoint" in title else f"{title} by checkpoint",
                summary=f"A heat map of layers by checkpoints. {known.meaning}",
                about=meaning_of(metric),
                unit=known.unit,
                note="" if len(finite) else "no value: the states do not vary",
                name=f"checkpoints_{metric}",
                sheet="checkpoints",
                corner="layer",
                rows=tuple(map(str, values.index)),
                columns=tuple(steps[name] for name in values.columns),
                values=tuple(map(tuple, scaled.tolist())),
                low=None,
                high=None,
                least=LEAST * float(np.abs(finite).max(initial=0.0)),
                across="checkpoint",
                down="layer",
                log=known.log and bool((finite > 0).all()),
                reversed=known.log,
                upward=True,
            )
        )
    return Section("checkpoints", "By checkpoint", COURSE, tuple(drawn))


def _matches(pair: Pair) -> Table:
    """Return for each layer of A the one of B that is most like it, and the one at the same depth."""

    def layer_cell(layer: Layer, depth: int) -> Cell:
        # final stands behind the last
        return Cell(str(layer), value=depth + 0.5 if layer == "final" else float(layer))

    heads, lines = [Column("layer")], []
    for form in pair.comparison.forms:
        name = named(*form)
        heads += [
            Column("most like", unit=name),
            Column(name, unit="most like"),
            Column(name, unit="same depth"),
        ]
    for matches in zip(*(pair.matches(*form) for form in pair.comparison.forms), strict=True):
        cells = [layer_cell(matches[0].layer, pair.a.depth)]
        for _, most, value, same, beside, _ in matches:
            alike = (
                [EMPTY] * 2
                if most is None
                else [layer_cell(most, pair.b.depth), Cell(shown(value), value=value)]
            )
            cells += alike
            cells.append(
                EMPTY if np.isnan(beside) else Cell(shown(beside), f"({layer_name(same)})", beside)
            )
        lines.append(row(*cells))
    return Table("Layers that match", tuple(heads), tuple(lines), (MATCHES,), name="matches")

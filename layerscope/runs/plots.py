"""The sections of a run: for each kind of metric its charts by layer and its table, and what is inside the blocks."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from layerscope.runs.curves import (
    SIMILAR,
    Curve,
    counted,
    heading,
    inside,
    panels,
    site_name,
    value_text,
)
from layerscope.runs.registry import (
    METRICS,
    Needs,
    capital,
    file_name,
    meaning_of,
    titled,
)
from layerscope.show.document import EMPTY, MARK, Cell, Column, Section, Table, row
from layerscope.show.numbers import NIL, error, number
from layerscope.show.plain import pooling_name
from layerscope.show.plots import Axis, Chart, HeatMap, Series

if TYPE_CHECKING:
    from layerscope.runs.run import Run

SECTIONS: dict[str, tuple[tuple[Needs, ...], str, str]] = {
    "probes": (
        ("labels",), "What your labels say",
        "Accuracy of probes trained on each layer's vectors, cross-validated, and how the vectors of a label lie.",
    ),
    "head": (
        ("lens",), "What the model's head reads",
        "Every layer seen through all that follows the model's last block: norm, pooler, head.",
    ),
    "quality": (
        ("tokens", "pooled", "views", "path"), "Quality of each layer",
        "Entropy, geometry and invariance, without labels. Whether high or low is better differs by model and data.",
    ),
    "similarity": (
        ("pairs",), "Similarity to the last layer",
        "How close each layer is to the last, and every two layers to each other.",
    ),
}  # fmt: skip
"""Which kinds of metrics stand under which heading."""
SUBLAYERS = "sublayers"
INSIDE = (
    "After each norm, attention, MLP and residual addition, and what the block gives."
)
STANDS_OUT = {
    "labels": "the highest of layers 1 and up",
    "similarity": f"from there on it stays above {SIMILAR}",
}
"""What the mark of a table means, by section; elsewhere some metrics stand out where they are low."""
ELSEWHERE = "the highest of layers 1 and up, or the lowest where that is what stands out; no verdict"
LEAST = 0.05
"""Of the values' size: where no error is known an axis is at least this long, not to magnify what hardly differs."""
FEW_MAPS = 2
"""Similarities that have a figure each for every two layers; more of them are panels of one."""


def sections(run: "Run", measured: list[Curve]) -> Iterator[Section]:
    """Yield the plots and the table of each kind of metric; a heading without a metric is left out."""
    for name, (kinds, title, lead) in SECTIONS.items():
        members = [curve for curve in measured if curve.about.needs in kinds]
        if members:
            plots: list[Chart | HeatMap] = [*by_layer(members, run)]
            if name == "similarity":
                plots += every_two_layers(run, members)
            if name == "head":
                plots += _settling(run, members)
            names = [heading(curve, members) for curve in members]
            yield Section(
                name,
                title,
                lead,
                (*plots, layer_table(title, name, members, names, run)),
            )
    sublayers = [_inside(curves) for curves in panels(inside(run)).values()]
    if sublayers:
        charts = [_inside_chart(curves, run) for curves in sublayers]
        first = sublayers[0]
        names = [site_name(curve.site) for curve in first]
        title = f"Inside the blocks · {first[0].title}"
        table = layer_table(title, SUBLAYERS, first, names, run)
        yield Section(SUBLAYERS, "Inside the blocks", INSIDE, (*charts, table))


def by_layer(measured: Sequence[Curve], run: "Run") -> Iterator[Chart]:
    """Yield a chart for each metric and variant: a line for each pooling, with errors and the value after the norm."""
    groups, table = panels(measured), run.at()
    for (metric, variant), curves in groups.items():
        several = sum(other == metric for other, _ in groups) > 1
        yield Chart(
            title=capital(titled(metric, variant)),
            variant=(variant or "").replace(",", ", "),
            summary="; ".join(_summary(curve) for curve in curves),
            about=meaning_of(metric, table),
            unit=curves[0].unit,
            name=f"curve-{metric}-{variant}"
            if several and variant
            else f"curve-{metric}",
            sheet="curves",
            x=Axis("layer", whole=True, depth=run.depth),
            y=axis_of(curves),
            series=tuple(series(curve, run) for curve in curves),
            overlaid=True,
            marked="stands out",
        )


def axis_of(curves: Sequence[Curve]) -> Axis:
    """Return the vertical axis of curves of one metric, long enough that noise looks like noise."""
    values = np.abs(np.concatenate([curve.values for curve in curves]))
    errors = np.concatenate([curve.stderr for curve in curves])
    values, errors = (
        values[np.isfinite(values)],
        errors[np.isfinite(errors) & (errors > NIL)],
    )
    least = 0.0
    if len(errors):
        least = 4 * float(np.median(errors))
    elif len(values):
        least = LEAST * float(np.median(values))
    return Axis("", log=curves[0].about.log, scale=curves[0].scale, least=least)


def series(curve: Curve, run: "Run") -> Series:
    """Return a curve as points by layer, the value after the final norm apart from the line."""
    points = [(float(layer), *curve.at(layer)) for layer in curve.layers]
    if curve.final is not None:
        points.append((float(run.depth), *curve.last()))
    layers, values, errors = zip(*points, strict=True)
    note = counted(curve, run)
    if not np.isfinite(values).any():
        lack = curve.about.how.lack(curve.n, run.info["model"]["width"])
        note += f"; {lack}".replace("`", "") if lack else ""
    marked = [i for i, layer in enumerate(curve.layers) if layer == curve.stands_out]
    return Series(
        pooling_name(curve.pooling) if curve.pooling else "",
        layers,
        values,
        errors=errors if np.isfinite(errors).any() else (),
        marked=tuple(marked),
        after=(len(layers) - 1,) if curve.final is not None else (),
        note=f"N: {note}",
    )


def _summary(curve: Curve) -> str:
    start, end = (
        value_text(curve, *curve.at(curve.layers[0])),
        value_text(curve, *curve.last()),
    )
    text = f"{start} at layer {curve.layers[0]}, {end} at the last layer"
    return f"{pooling_name(curve.pooling)}: {text}" if curve.pooling else text


def every_two_layers(run: "Run", measured: Sequence[Curve]) -> Iterator[HeatMap]:
    """Yield a heat map of every two layers for each similarity and pooling."""
    kinds = {curve.metric for curve in measured if curve.metric in METRICS}
    # a history knows of each layer and the last one only
    for curve in measured if not run.is_history else ():
        if curve.metric not in kinds:
            continue
        square = run.metric(curve.metric, pooling=curve.pooling, variant=curve.variant)
        names = tuple(map(str, square.index))
        if square.notna().any(axis=None):
            yield HeatMap(
                title=f"{capital(curve.title)} of every two layers",
                summary=f"A heat map: {curve.about.meaning}",
                about=meaning_of(curve.metric, run.at()),
                variant=(curve.variant or "").replace(",", ", "),
                choice=pooling_name(curve.pooling),
                name=file_name(curve.metric, curve.variant),
                sheet="similarity" if len(kinds) > FEW_MAPS else "",
                rows=names,
                columns=names,
                values=tuple(tuple(map(float, line)) for line in square.to_numpy()),
                low=None,
                least=1 - SIMILAR,
                across="layer",
                down="layer",
                square=True,
                upward=True,
            )


def _settling(run: "Run", measured: Sequence[Curve]) -> Iterator[Chart]:
    """Yield bars of the share of predictions whose last change is at each layer."""
    for curve in [curve for curve in measured if curve.metric == "saturated"][:1]:
        shares = np.diff(curve.values, prepend=0.0)
        layers = tuple(map(float, curve.layers))
        yield Chart(
            title="Where predictions settle",
            summary="Bars by layer: the share of predictions that settle there.",
            about=meaning_of("saturation_layer", run.at()),
            name="saturation",
            x=Axis("settles at layer", (0.4, run.depth + 0.6), whole=True),
            y=Axis(f"% of {curve.n:,} predictions", scale=100.0),
            series=(Series("", layers, tuple(map(float, shares)), mark="bars"),),
        )


def _inside(curves: list[Curve]) -> list[Curve]:
    """Return the curves of a metric at every site of the blocks, those of the first pooling."""
    kept = [curve for curve in curves if curve.pooling == curves[0].pooling]
    return [replace(curve, final=None, stands_out=None) for curve in kept]


def _inside_chart(panel: list[Curve], run: "Run") -> Chart:
    """Return one metric at every site of the blocks: a line for each site."""
    first = panel[0]
    variant = (
        f" ({first.variant})" if first.variant and first.variant != "alpha=1" else ""
    )
    lines = [
        replace(series(c, run), name=site_name(c.site), tone=i)
        for i, c in enumerate(panel)
    ]
    return Chart(
        title=capital(f"{first.title}{variant} inside the blocks"),
        summary=f"{first.title} at every site of the blocks",
        about=meaning_of(first.metric, run.at()),
        unit=first.unit,
        name=f"inside-{first.metric}",
        sheet=SUBLAYERS,
        x=Axis("layer", whole=True, depth=run.depth),
        y=axis_of(panel),
        series=tuple(lines),
    )


def layer_table(
    title: str, section: str, members: Sequence[Curve], names: Sequence[str], run: "Run"
) -> Table:
    """Return a column for each curve, and a row for each layer and after the final norm."""
    columns = [Column("layer")]
    columns += [
        Column(name, "decimal", unit=curve.unit)
        for name, curve in zip(names, members, strict=True)
    ]
    layers = sorted({layer for curve in members for layer in curve.layers})
    rows = [
        row(Cell(str(layer), value=layer), *(_cell(curve, layer) for curve in members))
        for layer in layers
    ]
    if any(curve.final is not None for curve in members):
        after = Cell("final", value=run.depth + 0.5)
        rows.append(row(after, *(_final_cell(curve) for curve in members)))
    numbers = "; ".join(dict.fromkeys(counted(curve, run) for curve in members))
    legend = [f"N: {numbers}."]
    if any(curve.stands_out is not None for curve in members):
        legend.append(f"{MARK} {STANDS_OUT.get(section, ELSEWHERE)}.")
    name = f"{section}-by-layer"
    return Table(title, tuple(columns), tuple(rows), tuple(legend), name=name)


def _cell(curve: Curve, layer: int) -> Cell:
    if layer not in curve.layers:
        return EMPTY
    return replace(cell(curve, *curve.at(layer)), marked=layer == curve.stands_out)


def _final_cell(curve: Curve) -> Cell:
    return EMPTY if curve.final is None else cell(curve, *curve.last())


def cell(curve: Curve, value: float, stderr: float) -> Cell:
    """Return a point of a curve as a cell in its unit: shares in percent, similarities with three decimals."""
    value, stderr = curve.scale * value, curve.scale * stderr
    more = (("stderr", stderr),)
    if not math.isfinite(value):
        return Cell(number(value), value=value, more=more)
    if curve.unit == "%":
        detail = f"±{stderr:.1f} %" if stderr >= NIL else "%"
        return Cell(f"{value:.1f}", detail, value, more=more)
    # + 0.0: no minus before nothing
    decimals = (
        f"{round(value, 3) + 0.0:.3f}"
        if curve.about.needs == "pairs"
        else number(value)
    )
    return Cell(decimals, error(stderr), value, more=more)

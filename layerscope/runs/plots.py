"""The sections of a run: for each kind of metric its charts by layer and its table, and what is inside the blocks.

A chart has one metric and variant, with a line for each pooling. The table of a section has a
column for each of its curves and a row for each layer; similarities have also a heat map of every
two layers. Sections without a metric are left out.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from layerscope.core import capital
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
    file_name,
    meaning_of,
    spaced,
    titled,
)
from layerscope.runs.run import Run
from layerscope.runs.why import repeats
from layerscope.show.document import EMPTY, MARK, Cell, Column, Section, Table, row
from layerscope.show.numbers import NIL, error, number
from layerscope.show.plain import pooling_name
from layerscope.show.plots import Axis, Chart, HeatMap, Series

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
    "why": (
        ("forward",), "Why: massive tokens, and skipped blocks",
        "Token entropy with and without massive tokens, the attention to the first one, and what skipping a block "
        "changes.",
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
STANDS_OUT = {"similarity": f"from there on it stays above {SIMILAR}"}
"""What the mark of a table means, by section; elsewhere some metrics stand out where they are low."""
ELSEWHERE = "the highest of layers 1 and up, or the lowest where that is what stands out; no verdict"
LEAST = 0.05
"""Of the values' size: where no error is known an axis is at least this long, not to magnify what hardly differs."""
FEW_MAPS = 2
"""Similarities that have a figure each for every two layers; more of them are panels of one."""


def sections(run: Run, measured: list[Curve]) -> Iterator[Section]:
    """Yield the plots and the table of each kind of metric.

    A heading without a metric is left out.
    """
    for name, (kinds, title, lead) in SECTIONS.items():
        of_kind = [curve for curve in measured if curve.about.needs in kinds]
        members = [curve for curve in of_kind if not repeats(curve, of_kind)]
        if not members:
            continue
        plots: list[Chart | HeatMap] = [*by_layer(members, run)]
        if name == "similarity":
            plots += every_two_layers(run, members)
        names = [heading(curve, members) for curve in members]
        table = layer_table(title, name, members, names, run)
        yield Section(name, title, lead, (*plots, table))
    groups = [_of_first_pooling(curves) for curves in panels(inside(run)).values()]
    for first in groups[:1]:
        charts = [_inside_chart(curves, run) for curves in groups]
        names = [site_name(curve.site) for curve in first]
        title = f"Inside the blocks · {first[0].title}"
        table = layer_table(title, SUBLAYERS, first, names, run)
        yield Section(SUBLAYERS, "Inside the blocks", INSIDE, (*charts, table))


def by_layer(measured: Sequence[Curve], run: Run) -> Iterator[Chart]:
    """Yield a chart for each metric and variant: a line for each pooling, with errors and the value after the norm."""
    groups = panels(measured)
    table = run.at()
    names = [metric for metric, _ in groups]
    for (metric, variant), curves in groups.items():
        name = f"curve-{metric}"
        if names.count(metric) > 1 and variant:
            name += f"-{variant}"
        yield Chart(
            title=capital(titled(metric, variant)),
            variant=spaced(variant),
            summary="; ".join(map(_summary, curves)),
            about=meaning_of(metric, table),
            unit=curves[0].about.unit,
            name=name,
            sheet="curves",
            x=Axis("layer", whole=True, depth=run.depth),
            y=axis_of(curves),
            series=tuple(series(curve, run) for curve in curves),
            overlaid=True,
            marked="stands out",
        )


def axis_of(curves: Sequence[Curve]) -> Axis:
    """Return the vertical axis of curves of one metric, long enough that noise looks like noise.

    It is at least four times as long as a typical standard error; where no error is known, at least
    `LEAST` of a typical value.
    """
    values = np.abs(np.concatenate([curve.values for curve in curves]))
    errors = np.concatenate([curve.stderr for curve in curves])
    values = values[np.isfinite(values)]
    errors = errors[errors > NIL]
    least = 0.0
    if len(errors):
        least = 4 * float(np.median(errors))
    elif len(values):
        least = LEAST * float(np.median(values))
    first = curves[0].about
    return Axis("", log=first.log, scale=first.scale, least=least)


def series(curve: Curve, run: Run) -> Series:
    """Return a curve as points by layer, the value after the final norm apart from the line."""
    columns = {"layer": curve.layers, "value": curve.values, "error": curve.stderr}
    points = pd.DataFrame(columns)
    points["chosen"] = points["layer"] == curve.stands_out
    after = tuple[int, ...]()
    name = ""
    if curve.final is not None:
        after = (len(points),)
        points.loc[len(points)] = run.depth, curve.final, curve.final_stderr, False
    note = counted(curve, run)
    if not np.isfinite(points["value"]).any():
        width = run.info["model"]["width"]
        lack = curve.about.how.lack(curve.n, width) or ""
        note = "; ".join(filter(None, (note, lack.replace("`", ""))))
    if curve.pooling:
        name = pooling_name(curve.pooling)
    return Series.of(
        points, "layer", "value", name, error="error", after=after, note=f"N: {note}"
    )


def _summary(curve: Curve) -> str:
    """Return a curve's first and last value in words, for who does not see the chart."""
    first = curve.layers[0]
    start = value_text(curve.about, *curve.at(first))
    end = value_text(curve.about, *curve.last())
    text = f"{start} at layer {first}, {end} at the last layer"
    if curve.pooling:
        text = f"{pooling_name(curve.pooling)}: {text}"
    return text


def every_two_layers(run: Run, measured: Sequence[Curve]) -> Iterator[HeatMap]:
    """Yield a heat map of every two layers for each similarity and pooling."""
    if run.is_history:  # it knows of each layer and the last one only
        return
    pairs = [curve for curve in measured if curve.metric in METRICS]
    sheet = ""
    if len({curve.metric for curve in pairs}) > FEW_MAPS:
        sheet = "similarity"
    for curve in pairs:
        square = run.metric(curve.metric, pooling=curve.pooling, variant=curve.variant)
        if square.notna().any(axis=None):
            yield HeatMap.of(
                square,
                title=f"{capital(curve.title)} of every two layers",
                summary=f"A heat map: {curve.about.meaning}",
                about=meaning_of(curve.metric, run.at()),
                variant=spaced(curve.variant),
                choice=pooling_name(curve.pooling),
                name=file_name(curve.metric, curve.variant),
                sheet=sheet,
                low=None,
                least=1 - SIMILAR,
                across="layer",
                down="layer",
                square=True,
            )


def _of_first_pooling(curves: list[Curve]) -> list[Curve]:
    """Return the curves of a metric at every site of the blocks, those of the first pooling."""
    kept = [curve for curve in curves if curve.pooling == curves[0].pooling]
    return [replace(curve, final=None, stands_out=None) for curve in kept]


def _inside_chart(panel: list[Curve], run: Run) -> Chart:
    """Return one metric at every site of the blocks: a line for each site."""
    first = panel[0]
    title = first.title
    if first.variant not in (None, "alpha=1"):
        title += f" ({first.variant})"
    lines = tuple(
        replace(series(curve, run), name=site_name(curve.site), tone=tone)
        for tone, curve in enumerate(panel)
    )
    return Chart(
        title=capital(f"{title} inside the blocks"),
        summary=f"{first.title} at every site of the blocks",
        about=meaning_of(first.metric, run.at()),
        unit=first.about.unit,
        name=f"inside-{first.metric}",
        sheet=SUBLAYERS,
        x=Axis("layer", whole=True, depth=run.depth),
        y=axis_of(panel),
        series=lines,
    )


def layer_table(
    title: str, section: str, members: Sequence[Curve], names: Sequence[str], run: Run
) -> Table:
    """Return a column for each curve, and a row for each layer and after the final norm."""
    columns = [Column("layer")]
    rows = []
    for name, curve in zip(names, members, strict=True):
        columns.append(Column(name, "decimal", unit=curve.about.unit))
    for layer in sorted({layer for curve in members for layer in curve.layers}):
        cells = []
        for curve in members:
            point = EMPTY
            if layer in curve.layers:
                point = cell(curve, *curve.at(layer))
            cells.append(replace(point, marked=layer == curve.stands_out))
        rows.append(row(Cell(str(layer), value=layer), *cells))
    finals = [EMPTY if c.final is None else cell(c, *c.last()) for c in members]
    if finals.count(EMPTY) < len(finals):
        rows.append(row(Cell("final", value=run.depth + 0.5), *finals))
    numbers = dict.fromkeys(counted(curve, run) for curve in members)
    legend = [f"N: {'; '.join(numbers)}."]
    if any(curve.stands_out is not None for curve in members):
        legend.append(f"{MARK} {STANDS_OUT.get(section, ELSEWHERE)}.")
    name = f"{section}-by-layer"
    return Table(title, tuple(columns), tuple(rows), tuple(legend), name=name)


def cell(curve: Curve, value: float, stderr: float) -> Cell:
    """Return a point of a curve as a cell in its unit: shares in percent, similarities with three decimals."""
    record = curve.about
    value = record.scale * value
    stderr = record.scale * stderr
    text = number(value)
    detail = error(stderr)
    if not math.isfinite(value):
        detail = ""
    elif record.unit == "%":
        text = f"{value:.1f}"
        detail = "%"
        if stderr >= NIL:
            detail = f"±{stderr:.1f} %"
    elif record.needs == "pairs":
        # + 0.0: no minus before nothing
        text = f"{round(value, 3) + 0.0:.3f}"
    return Cell(text, detail, value, more=(("stderr", stderr),))

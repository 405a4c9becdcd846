"""The plots of a run: metrics by layer, every two layers, each sample's way to the last layer, inside the blocks."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from layerscope.runs import curves as run_curves
from layerscope.runs.by_sample import box_plots, quality
from layerscope.runs.curves import KINDS, SIMILAR, Curve, site_name, value_text
from layerscope.runs.registry import METRICS, Needs, about, capital, file_name, meaning_of, titled
from layerscope.show.document import Section
from layerscope.show.numbers import NIL, number
from layerscope.show.plain import pooling_name
from layerscope.show.plots import Axis, Chart, HeatMap, Plot, Series

if TYPE_CHECKING:
    from layerscope.runs.run import Run

SECTIONS: dict[str, tuple[tuple[Needs, ...], str, str]] = {
    "probes": (
        ("labels",), "What your labels say",
        "Accuracy of probes trained on each layer's vectors, cross-validated, and how the vectors of a label lie.",
    ),
    "quality": (
        ("tokens", "pooled", "views", "path"), "Quality of each layer",
        "Entropy, geometry and invariance, without labels. Whether high or low is better differs by model and data.",
    ),
    "similarity": (
        ("pairs",), "Similarity of layers", "How close each layer is to the last, and every two layers to each other."
    ),
    "head": (
        ("lens",), "What the model's head reads",
        "Every layer seen through all that follows the model's last block: norm, pooler, head.",
    ),
}  # fmt: skip
"""Which kinds of metrics stand under which heading."""
INSIDE = (
    "After each norm, attention (or another branch that mixes tokens), MLP and residual addition, and what the block "
    "gives."
)
TOGETHER = {"infonce_bound": "infonce"}
"""What mirrors another metric is drawn in its panel."""
STANDS_OUT = "stands out"
LEAST = 0.05
"""Of the values' size: where no error is known an axis is at least this long, not to magnify what hardly differs."""
FEW_MAPS = 2
"""Similarities that have a figure each for every two layers; more of them are panels of one."""


def sections(run: "Run", known: list[Curve]) -> Iterator[Section]:
    """Yield the plots of a run under their headings; a heading without a plot is left out."""
    for name, (kinds, title, lead) in SECTIONS.items():
        own = [curve for curve in known if about(curve.metric).needs in kinds]
        plots = [*by_layer(own, run), *(BESIDE[name](run, own) if name in BESIDE else ())]
        if plots:
            yield Section(name, title, lead, tuple(plots), tuple(_legend(own)))
    table = run.at()
    found = [
        _inside(curves, run, table) for curves in run_curves.panels(run_curves.inside(run)).values()
    ]
    if found:
        yield Section("sublayers", "Inside the blocks", INSIDE, tuple(found))


def by_layer(known: Sequence[Curve], run: "Run") -> Iterator[Chart]:
    """Yield a chart for each metric and variant: a line for each pooling, with errors and the value after the norm."""
    found, table = run_curves.panels(known), run.at()
    metrics = {metric for metric, _ in found}
    for (metric, variant), curves in found.items():
        if TOGETHER.get(metric) in metrics:
            continue
        mirrored = [
            c for (other, _), own in found.items() if TOGETHER.get(other) == metric for c in own
        ]
        bound = f" and its {about(mirrored[0].metric).title.rpartition(' ')[2]}" if mirrored else ""
        meant = meaning_of(metric, table)
        others = {about(c.metric).title: meaning_of(c.metric, table) for c in mirrored}
        beside = [
            (capital(name), f"{m.meaning} {m.direction} {m.source}") for name, m in others.items()
        ]
        several = sum(other == metric for other, _ in found) > 1
        yield Chart(
            title=capital(titled(metric, variant)) + bound,
            variant=(variant or "").replace(",", ", "),
            summary="; ".join(_summary(curve) for curve in curves),
            about=replace(meant, more=(*meant.more, *beside)),
            unit=curves[0].unit,
            group=KINDS.get(about(metric).needs, "Each layer and the last"),
            name=f"curve-{metric}-{variant}" if several and variant else f"curve-{metric}",
            sheet="curves",
            x=Axis("layer", whole=True, depth=run.depth),
            y=axis_of(curves),
            series=(
                *(series(c, run) for c in curves),
                *(replace(series(c, run), detail="bound") for c in mirrored),
            ),
            overlaid=True,
            marked=STANDS_OUT,
        )


def axis_of(curves: Sequence[Curve]) -> Axis:
    """Return the vertical axis of curves of one metric."""
    values = np.abs(np.concatenate([c.values[np.isfinite(c.values)] for c in curves]))
    errors = np.concatenate([c.stderr[np.isfinite(c.stderr) & (c.stderr > NIL)] for c in curves])
    least = (
        4 * float(np.median(errors))
        if len(errors)
        else LEAST * float(np.median(values))
        if len(values)
        else 0.0
    )
    return Axis("", log=curves[0].log, scale=curves[0].scale, least=least)


def series(curve: Curve, run: "Run") -> Series:
    """Return a curve as points by layer, the value after the final norm apart from the line."""
    points = [(float(layer), *curve.at(layer)) for layer in curve.layers]
    if curve.final is not None:
        points.append((float(run.depth), *curve.last()))
    layers, values, errors = zip(*points, strict=True)
    by_token = about(curve.metric).needs == "tokens" or run.info["model"].get("lens") == "tokens"
    counted = f"N: {curve.n:,}" + (f", {curve.n_skipped:,} skipped" if curve.n_skipped else "")
    name = pooling_name(curve.pooling) if curve.pooling else ""
    lack = (
        None
        if np.isfinite(values).any()
        else about(curve.metric).how.lack(curve.n, run.info["model"]["width"])
    )
    counted += f"; {lack}".replace("`", "") if lack else ""
    return Series(
        name,
        layers,
        values,
        errors=errors if np.isfinite(errors).any() else (),
        marked=()
        if curve.stands_out is None or not curve.differs
        else (curve.layers.index(curve.stands_out),),
        after=(len(layers) - 1,) if curve.final is not None else (),
        note=f"by token · {counted}" if by_token and not name else counted,
    )


def _summary(curve: Curve) -> str:
    start, end = value_text(curve, *curve.at(curve.layers[0])), value_text(curve, *curve.last())
    text = f"{start} at layer {curve.layers[0]}, {end} at the last layer"
    if curve.stands_out is not None and curve.differs:
        text += f", layer {curve.stands_out} stands out with {value_text(curve, *curve.at(curve.stands_out))}"
    return f"{pooling_name(curve.pooling)}: {text}" if curve.pooling else text


def _legend(curves: Sequence[Curve]) -> Iterator[str]:
    """Yield what the marks of a section stand for, where there are such marks."""
    yield from _marks([c for c in curves if c.stands_out is not None and c.differs])
    if any(c.final is not None for c in curves):
        yield "◇ after the final norm"
    if any(np.isfinite(c.stderr).any() for c in curves):
        yield "Bands: ± one standard error."


def _marks(marked: Sequence[Curve]) -> Iterator[str]:
    """Yield which layer is marked in the curves that have a marked one."""
    low = [c for c in marked if about(c.metric).low]
    if any(about(c.metric).needs == "pairs" for c in marked):
        yield f"○ the layer from which the value stays above {SIMILAR}"
    elif len(low) < len(marked):
        yield "○ stands out: the highest of layers 1 and up, no verdict"
    for title in dict.fromkeys(c.title for c in low if about(c.metric).needs != "pairs"):
        yield f"○ {title}: the lowest"
    if any(c.metric == "saturated" for c in marked):
        yield "○ saturated: the layer from which it stays above half"


def _pairs(run: "Run", known: Sequence[Curve]) -> Iterator[Plot]:
    """Yield a heat map of every two layers for each similarity and pooling, and boxes of each sample's cosine."""
    of_pairs, table = {m.name for m in METRICS.values() if m.needs == "pairs"}, run.at()
    squares = []
    # a history knows of each layer and the last one only
    for curve in known if not run.is_history else ():
        if curve.metric in of_pairs:
            square = run.metric(curve.metric, pooling=curve.pooling, variant=curve.variant)
            if square.notna().any(axis=None):
                squares.append((curve, square))
    kinds = {(curve.metric, curve.variant) for curve, _ in squares}
    for curve, square in squares:
        names, record = tuple(map(str, square.index)), about(curve.metric)
        yield HeatMap(
            title=f"{capital(curve.title)} of every two layers",
            summary=f"A heat map: {record.meaning}",
            about=meaning_of(curve.metric, table),
            variant=(curve.variant or "").replace(",", ", "),
            group="Every two layers",
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
            depth=run.depth,
        )
    yield from box_plots(run, "samples.cosine_to_last")


def _settling(run: "Run", known: Sequence[Curve]) -> Iterator[Chart]:
    """Yield bars of the share of predictions whose last change is at each layer."""
    table = run.at()
    mean = table.loc[table["metric"] == "saturation_layer", "value"]
    at = float(mean.iloc[0]) if len(mean) else math.nan
    for curve in [c for c in known if c.metric == "saturated"][:1]:
        shares = np.diff(curve.values, prepend=0.0)
        bars = Series(
            "",
            tuple(map(float, curve.layers)),
            tuple(map(float, shares)),
            mark="bars",
        )
        yield Chart(
            title="Where predictions settle",
            summary="Bars by layer: the share of predictions that settle there.",
            about=meaning_of("saturation_layer", table),
            name="saturation",
            x=Axis("settles at layer", (0.4, run.depth + 0.6), whole=True),
            y=Axis(f"% of {curve.n:,} predictions", scale=100.0),
            series=(bars,),
            lines=((at, f"mean {number(at)}"),) if math.isfinite(at) else (),
            height=1.8,
        )


BESIDE = {"quality": quality, "similarity": _pairs, "head": _settling}
"""What stands below the curves of a section, by its name."""


def _inside(curves: list[Curve], run: "Run", table: pd.DataFrame) -> Chart:
    """Return one metric at every site of the blocks, of the first pooling: a line for each site."""
    panel = [
        replace(c, final=None, stands_out=None) for c in curves if c.pooling == curves[0].pooling
    ]
    first = panel[0]
    variant = f" ({first.variant})" if first.variant and first.variant != "alpha=1" else ""
    lines = (replace(series(c, run), name=site_name(c.site), tone=i) for i, c in enumerate(panel))
    return Chart(
        title=capital(f"{first.title}{variant} inside the blocks"),
        summary=run_curves.steps_text(panel) or f"{first.title} at every site of the blocks",
        about=meaning_of(first.metric, table),
        unit=first.unit,
        group=KINDS.get(about(first.metric).needs, ""),
        name=f"inside-{first.metric}",
        sheet="sublayers",
        x=Axis("layer", whole=True, depth=run.depth),
        y=axis_of(panel),
        series=tuple(lines),
    )

"""What differs from sample to sample: box plots by layer, and entropy along the sequence with its spread."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from layerscope.runs.curves import KINDS, Curve, value_text
from layerscope.runs.registry import about, capital, meaning_of
from layerscope.show.numbers import number
from layerscope.show.plain import plain, pooling_name
from layerscope.show.plots import Axis, Box, Boxes, Chart, Meaning, Series

if TYPE_CHECKING:
    from layerscope.runs.run import Run

WHISKERS = (5, 95)
"""Percentiles between which the whiskers reach."""
OUTLIERS = 20
"""At most this many samples beyond the whiskers of a layer are kept by name, those below 0 and the furthest first."""
BOXES: dict[str, tuple[str, str, Meaning | None]] = {
    "cosine_to_last": ("Each sample's cosine to the last layer", "cosine", None),
    "cosine_to_next": ("Each sample's cosine to the next layer", "cosine", None),
    "norm_ratio": (
        "Each sample's norm against what a block adds", "‖h‖ / ‖f(h)‖", Meaning(
            "Norm of a layer's vector over that of its difference to the next layer's; from 0. In a pre-norm block "
            "the difference is what the block adds to the residual stream; in a post-norm block it is not.",
            "High: the skip connection outweighs the block.", "Tracing Representation Progression, figure 11",
        ),
    ),
}  # fmt: skip
"""Box plots of values of each sample, by their table: title, axis and meaning, by default that of cosine similarity."""


def box_plots(run: Run) -> Iterator[Boxes]:
    """Yield box plots of each sample's values by layer: cosine to the last and the next layer, and ratio of norms."""
    table = run.at()
    low, high = WHISKERS
    for name, (title, y, about_it) in BOXES.items():
        drawn = boxes(run, f"samples.{name}")
        if not drawn:
            continue
        most = max(drawn, key=lambda box: box.negative)
        below = f"{most.negative:,} of {most.n:,} samples are below 0 at layer {most.name}, the most"
        yield Boxes(
            title=title,
            summary=f"Boxes by layer: quartiles, whiskers from {low} to {high} %, dots for samples beyond.",
            note=below if most.negative else "",
            about=about_it or meaning_of("cosine_similarity", table),
            choice=pooling_name(str(run.folder.read_table(f"samples.{name}")["pooling"].iloc[0])),
            name=name,
            x="layer",
            y=y,
            boxes=tuple(drawn),
            each="sample",
            legend=("median of the samples", "quarter to three quarters", f"{low} % to {high} %"),
        )


def boxes(run: Run, table: str) -> list[Box]:
    """Return each sample's values in a table as a box for each layer but the last after its norm; empty without it."""
    if not run.folder.has_table(table):
        return []
    names = run.folder.plan.drop_duplicates("sample").set_index("sample")["name"]
    values = run.folder.read_table(table)
    last = (values["layer"] == run.depth) & (values["site"] == run.final)
    found = []
    for layer, rows in values[~last & np.isfinite(values["value"])].groupby("layer", sort=True):
        value = rows["value"]
        low, first, median, third, high = np.percentile(value, (WHISKERS[0], 25, 50, 75, WHISKERS[1])).tolist()
        beyond = rows.assign(below=value < 0, far=(value - median).abs())[(value < low) | (value > high)]
        shown = beyond.sort_values(["below", "far"], ascending=False, kind="stable")[:OUTLIERS]
        outliers = zip(map(plain, map(str, names.loc[shown["sample"]])), shown["value"].tolist(), strict=True)
        box = Box(
            str(int(layer)), (first, median, third), (low, high), float(value.mean()), len(rows), tuple(outliers),
            negative=int((value < 0).sum()),
        )  # fmt: skip
        found.append(box)
    return found


def along(run: Run, known: Sequence[Curve]) -> Iterator[Chart]:
    """Yield what is measured of each sample's first tokens by their number, at five layers, and its spread."""
    found: dict[tuple[str, str], dict[int, Curve]] = {}
    for curve in known:
        variant, _, prefix = (curve.variant or "").partition(",prefix=")
        if prefix:
            found.setdefault((curve.metric, variant), {})[int(prefix)] = curve
    for (metric, variant), curves in found.items():
        lines, first = [], next(iter(curves.values()))
        for i, layer in enumerate(dict.fromkeys(round(quarter * run.depth / 4) for quarter in range(5))):
            values, errors = zip(*(curve.at(layer) for curve in curves.values()), strict=True)
            counts = [curve.n for curve in curves.values()]
            spread = tuple(error * math.sqrt(n) for error, n in zip(errors, counts, strict=True))
            texts = tuple(
                f"layer {layer}, first {prefix} tokens: {value_text(first, value)}, standard deviation {number(sd)} "
                f"over {n:,} samples"
                for prefix, value, sd, n in zip(curves, values, spread, counts, strict=True)
            )
            x = tuple(map(float, curves))
            lines.append(Series(f"layer {layer}", x, values, texts, errors=spread, tone=i))
        yield Chart(
            title=f"{capital(first.title)} along the sequence",
            variant=variant,
            summary=f"{lines[-1].texts[0]}; {lines[-1].texts[-1]}",
            note="Bands: ± one standard deviation over the samples",
            about=meaning_of(metric, run.at()),
            unit=first.unit,
            group=KINDS.get(about(metric).needs, ""),
            name=f"along-{metric}-{variant}" if len(found) > 1 else f"along-{metric}",
            x=Axis("first tokens of a sample", whole=True),
            y=Axis(f"{first.title} ({first.unit})"),
            series=tuple(lines),
            spread="standard deviation",
        )

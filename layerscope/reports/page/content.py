"""From runs to what the page says and draws: plain values, every text still as the data gave it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from layerscope.inputs.corpus import folder_name
from layerscope.reports.boxes import WHISKERS, Box, boxes, boxes_pooling
from layerscope.runs.curves import Curve, curves, panels, told
from layerscope.runs.finding import Finding
from layerscope.runs.findings import findings
from layerscope.runs.names import run_names
from layerscope.runs.registry import METRICS, Metric, about, rank
from layerscope.runs.run import Run
from layerscope.runs.titles import capital, titled
from layerscope.show.numbers import number
from layerscope.show.plain import plain, pooling_name
from layerscope.show.plots import Meaning

Json = dict[str, Any]


@dataclass(frozen=True)
class Figure:
    """One plot of the page: what is written around it, and in `drawn` what the script draws."""

    title: str
    kind: str
    summary: str
    drawn: Json
    metric: Metric | Meaning
    unit: str = ""

    @property
    def plots(self) -> int:
        """How many plots stand beside each other in it."""
        return len(self.drawn.get("places", (0,)))

    @property
    def choices(self) -> int:
        """Among how many runs and poolings each of its plots chooses; 1 is no choice."""
        return len(self.drawn.get("choices", (0,)))

    @property
    def file(self) -> str:
        """Name its downloads begin with."""
        return folder_name(self.title.lower().replace(" ", "-"))


@dataclass(frozen=True)
class Table:
    """One table of the page: `head` names its first column (None: none but the run), cells stand under `columns`."""

    id: str
    title: str
    lead: str
    head: str | None
    columns: list[Json]
    rows: list[Json]


@dataclass(frozen=True)
class Section:
    """Figures under one heading, with a sentence on how to read them."""

    id: str
    title: str
    lead: str
    rows: tuple[tuple[Figure, ...], ...]
    """Curves by layer in one, what holds a run of its own in the next."""
    tables: tuple[Table, ...] = ()
    """What stands below the figures."""

    @property
    def figures(self) -> tuple[Figure, ...]:
        """All figures in the order of the page."""
        return tuple(figure for row in self.rows for figure in row)


@dataclass(frozen=True)
class Shown:
    """A run as the page shows it: its name among the others, its curves and what stands out."""

    name: str
    run: Run
    curves: list[Curve]
    findings: list[Finding]
    tables: pd.DataFrame = field(repr=False)


def shown(runs: Sequence[Run]) -> list[Shown]:
    """Read runs as far as they are finished; a run without any table is an error of its own."""
    found = []
    for name, run in zip(run_names(runs), runs, strict=True):
        table, known = run.at(), curves(run)
        found.append(Shown(plain(name), run, known, findings(run, known), table))
    return found


SECTIONS: dict[str, tuple[tuple[str, ...], str, str]] = {
    "probes": (
        ("labels",),
        "What your labels say",
        "Accuracy of probes trained on each layer's vectors, cross-validated.",
    ),
    "quality": (
        ("tokens", "pooled", "views"),
        "Quality of each layer",
        "Entropy, geometry and invariance, without labels. Which end of a scale serves a task differs by model and "
        "data.",
    ),
    "similarity": (
        ("pairs",),
        "Similarity of layers",
        "How close each layer is to the last, and every two layers to each other.",
    ),
    "head": (
        ("lens",),
        "What the model's head reads",
        "Every layer seen through all that follows the model's last block: norm, pooler, head.",
    ),
}
"""Which kinds of metrics (`Metric.needs`) stand under which heading."""


def sections(runs: Sequence[Shown]) -> list[Section]:
    """Return the figures of runs under their headings; a heading without a figure is left out."""
    known = [(i, curve) for i, entry in enumerate(runs) for curve in entry.curves]
    keys = sorted(panels([curve for _, curve in known]), key=lambda key: rank(key[0]))
    by_panel = {key: [(i, curve) for i, curve in known if (curve.metric, curve.variant) == key] for key in keys}
    found = []
    for name, (kinds, title, lead) in SECTIONS.items():
        figures = [
            curve_figure(lines, runs, _titled(key, by_panel))
            for key, lines in by_panel.items()
            if about(key[0]).needs in kinds
        ]
        rows = (tuple(figures), tuple(BESIDES[name](runs)) if name in BESIDES else ())
        if any(rows):
            found.append(Section(name, title, lead, tuple(row for row in rows if row)))
    return found


def _titled(key: tuple[str, str | None], known: Iterable[tuple[str, str | None]]) -> str:
    several = sum(name == key[0] for name, _ in known) > 1
    return titled(key[0], key[1] if several else None)


def curve_figure(lines: list[tuple[int, Curve]], runs: Sequence[Shown], title: str) -> Figure:
    """Return one metric by layer: a line for each run and pooling, with errors and the value after the norm."""
    first = lines[0][1]
    drawn = [_line(i, curve, runs[i].run) for i, curve in lines]
    return Figure(
        title=capital(title),
        kind="curve",
        summary="; ".join(_summary(runs[i].name if len(runs) > 1 else "", curve) for i, curve in lines),
        drawn={"log": first.log, "lines": drawn},
        unit=first.unit,
        metric=about(first.metric),
    )


def _line(index: int, curve: Curve, run: Run) -> Json:
    layers = list(curve.layers)
    points = [*layers, run.depth] if curve.final is not None else layers
    sites = [curve.site] * len(layers) + [run.final] * (curve.final is not None)
    values, errors = list(curve.values), list(curve.stderr)
    by_token = about(curve.metric).needs == "tokens" or run.info["model"].get("lens") == "tokens"
    if curve.final is not None:
        values, errors = [*values, curve.last()[0]], [*errors, curve.last()[1]]
    return {
        "run": index,
        "pooling": curve.pooling,
        "named": pooling_name(curve.pooling) if by_token or curve.pooling else "",
        "counted": f"N: {curve.n:,}" + (f", {curve.n_skipped:,} skipped" if curve.n_skipped else ""),
        "layers": points,
        "sites": sites,
        "values": [v * curve.scale for v in values],
        "errors": [e * curve.scale for e in errors],
        "raw": values,
        "stderr": errors,
        "told": [told(curve, v, e) for v, e in zip(values, errors, strict=True)],
        "final": curve.final is not None,
        "stands_out": curve.stands_out,
        "baseline": None,
    }


def _summary(name: str, curve: Curve) -> str:
    where = ", ".join(filter(None, (name, curve.pooling and pooling_name(curve.pooling))))
    start, end = told(curve, *curve.at(curve.layers[0])), told(curve, *curve.last())
    text = f"{start} at layer {curve.layers[0]}, {end} at the last layer"
    if curve.stands_out is not None:
        text += f", layer {curve.stands_out} stands out with {told(curve, *curve.at(curve.stands_out))}"
    return f"{where}: {text}" if where else text


def pair_figures(runs: Sequence[Shown]) -> Iterator[Figure]:
    """Yield a heat map of every two layers for each similarity, and boxes of each sample's cosine to the last."""
    for name in (m.name for m in METRICS.values() if m.needs == "pairs"):
        if choices := [choice for i, entry in enumerate(runs) for choice in _squares(i, entry, name)]:
            title = f"{capital(about(name).title)} of every two layers"
            text = f"A heat map: {about(name).meaning}"
            yield from beside("heat", title, text, choices, about(name))
    choices = [
        {"run": i, "choice": pooling_name(boxes_pooling(entry.run)), "boxes": [_box(box) for box in found]}
        for i, entry in enumerate(runs)
        if (found := boxes(entry.run))
    ]
    text = (
        "Boxes by layer: quartiles of each sample's cosine to the last layer, whiskers from "
        f"{WHISKERS[0]} to {WHISKERS[1]} %, dots for the samples furthest beyond them."
    )
    title = "Each sample's cosine to the last layer"
    yield from beside("box", title, text, choices, about("cosine_similarity"))


def _squares(index: int, entry: Shown, name: str) -> Iterator[Json]:
    rows = entry.tables[(entry.tables["metric"] == name) & entry.tables["layer_b"].notna()]
    if not entry.run.has_states:
        return  # a history knows of each layer and the last one only
    for pooling in rows.loc[rows["value"].notna(), "pooling"].unique():
        yield {"run": index, "choice": pooling_name(pooling), "metric": name, "pooling": pooling}


def _box(box: Box) -> Json:
    return {
        "layer": str(box.layer),
        "quartiles": [box.first, box.median, box.third],
        "whiskers": [box.low, box.high],
        "mean": box.mean,
        "n": box.n,
        "outliers": [{"name": plain(name), "value": value} for name, value in box.outliers],
    }


def saturation_figures(runs: Sequence[Shown]) -> Iterator[Figure]:
    """Yield bars of the share of predictions whose last change is at each layer."""
    choices = []
    for i, entry in enumerate(runs):
        curve = next((c for c in entry.curves if c.metric == "saturated"), None)
        if curve is None:
            continue
        mean = entry.tables.loc[entry.tables["metric"] == "saturation_layer", "value"]
        shares = np.diff(curve.values, prepend=0.0)
        choices.append(
            {
                "run": i,
                "choice": "",
                "layers": list(curve.layers),
                "shares": list(shares),
                "mean": float(mean.iloc[0]) if len(mean) else math.nan,
                "told": f"mean {number(float(mean.iloc[0]))}" if len(mean) else "",
                "n": curve.n,
            }
        )
    text = "Bars by layer: the share of predictions that settle there."
    yield from beside("bars", "Where predictions settle", text, choices, about("saturation_layer"))


BESIDES = {"similarity": pair_figures, "head": saturation_figures}
"""What stands below the curves of a section, by its name."""
SIDE_BY_SIDE = 3
"""Plots that hold one run each stand beside each other up to this many; then each offers the choice of a run."""


def beside(
    kind: str, title: str, text: str, choices: list[Json], metric: Metric | Meaning, unit: str = ""
) -> Iterator[Figure]:
    """Yield a figure of plots beside each other, one choice (a run, or a pooling of it) each; none without a choice."""
    if not choices:
        return
    by_run: dict[int, dict[str, int]] = {}
    for i, choice in enumerate(choices):
        by_run.setdefault(choice["run"], {})[choice["choice"]] = i
    shared = [name for name in next(iter(by_run.values())) if all(name in found for found in by_run.values())]
    # runs are compared by what all have, where there is such a thing
    firsts = [found[shared[0]] if shared else min(found.values()) for found in by_run.values()]
    places = firsts if len(by_run) > 1 else list(range(len(choices)))
    drawn = {"choices": choices, "places": places[:SIDE_BY_SIDE]}
    yield Figure(title, kind, text, drawn, metric, unit)

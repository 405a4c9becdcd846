"""From comparisons to what the page says and draws: layers by layers, differences by depth, layers by checkpoints."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from layerscope.comparison.comparison import Comparison, Member
from layerscope.comparison.findings import (
    SURE,
    Pair,
    as_values,
    best,
    checkpoints,
    difference_text,
    differences,
    findings,
    headline,
    layer_label,
    layer_name,
    maps,
    pairs,
    scale_of,
    shown,
    similarity_name,
)
from layerscope.reports.page.content import SIDE_BY_SIDE, Figure, Json, Section, Table, beside
from layerscope.runs.registry import Metric, about
from layerscope.runs.titles import capital, titled, unit_apart
from layerscope.show.plain import plain

RECT_NOTE = "○ the layer across that is most like the one down; layer 0 is no candidate."
DIGITS = 5
"""Significant enough for a colour, and a page a mail can carry."""
DIFFERENCE = Metric(
    name="difference",
    title="difference",
    meaning="The metric of the run named first less that of the other, at the same layer, or where depths differ at "
    "the layers nearest to each other in percent of depth. Bands are one standard error: of the mean difference by "
    "sample where both runs keep each sample's values, else of two independent values.",
    direction="Above 0: the run named first has more of it. Which end serves a task differs by metric, model and data.",
    source="measured here",
)


@dataclass(frozen=True)
class ShownComparison:
    """A comparison as the page shows it: its place among all that have a colour, a place for each pair."""

    first: int
    comparison: Comparison

    @property
    def pairs(self) -> list[tuple[int, Pair]]:
        """Each run beside the first, with its place."""
        return [(self.first + i, pair) for i, pair in enumerate(pairs(self.comparison))]

    @property
    def name(self) -> str:
        """What was compared, in one line."""
        names = [plain(member.name) for member in self.comparison.runs]
        if len(names) == 2:
            return f"{names[0]} and {names[1]}"
        return f"{len(names)} {'checkpoints' if self.comparison.series else 'runs'} compared"

    @property
    def findings(self) -> list[tuple[str, list[str]]]:
        """The answer of each pair and what else a sentence tells."""
        return [(headline(pair), findings(pair)) for _, pair in self.pairs]

    @property
    def facts(self) -> list[tuple[str, str]]:
        """What was compared, in texts fit to be shown."""
        c = self.comparison
        found = [("data", plain(c.data)), ("samples", f"{c.n:,}"), ("left out", f"{c.left_out:,}")]
        return [*found, *(("run", _fact(member)) for member in c.runs)]


def _fact(member: Member) -> str:
    revision = f", revision {plain(member.revision)}" if member.revision else ""
    size = f"{member.depth} layers, {member.width:,} wide, {member.pooling} pooling"
    return f"{plain(member.name)}: {size}{revision}; {plain(member.path)}"


def shown_comparisons(given: Sequence[Comparison], first: int) -> list[ShownComparison]:
    """Return comparisons in places from `first` on, as many each as it has pairs."""
    found = []
    for comparison in given:
        found.append(ShownComparison(first, comparison))
        first += len(comparison.runs) - 1
    return found


def comparison_members(given: Sequence[ShownComparison]) -> list[Json]:
    """Return what the scripts know of each pair: name, depth of the shallower run, and colour."""
    alone = sum(len(entry.pairs) for entry in given) == 1
    return [
        {"name": pair.name, "depth": min(pair.a.depth, pair.b.depth), "alone": alone, "look": at, "scores": None}
        for entry in given
        for at, pair in entry.pairs
    ]


def comparison_section(given: Sequence[ShownComparison]) -> Section:
    """Return the section of comparisons: maps, differences by depth, and their tables."""
    known = [found for entry in given for found in entry.pairs]
    lead = (
        "Layers of the first run down, those of the other across; then how much each metric differs by depth. Nothing "
        "here says which run is the better one."
    )
    rows = (
        tuple(figure for entry in given for figure in _series(entry)),
        tuple(_rectangles(known)),
        tuple(_differences(known)),
    )
    return Section("comparison", "Compared", lead, tuple(row for row in rows if row), (_matches(known),))


def _rectangles(known: Sequence[tuple[int, Pair]]) -> Iterator[Figure]:
    """Yield a heat map of every two layers for each similarity."""
    for metric in dict.fromkeys(name for _, pair in known for name in pair.comparison.similarities):
        choices = [_rectangle(at, pair, metric) for at, pair in known if metric in pair.comparison.similarities]
        text = "; ".join(headline(pair) for _, pair in known[:SIDE_BY_SIDE])
        title = f"{similarity_name(metric)} of layers across runs"
        for figure in beside("rectangle", title, text, choices, about(metric)):
            figure.drawn["note"] = RECT_NOTE
            yield figure


def _rectangle(at: int, pair: Pair, metric: str) -> Json:
    square = pair.square(metric)
    return {
        "run": at,
        "choice": "",
        "metric": metric,
        "down": [str(layer) for layer in square.index],
        "across": [str(layer) for layer in square.columns],
        "names": [plain(pair.a.name), plain(pair.b.name)],
        "values": [[round(value, DIGITS) for value in line] for line in as_values(square).tolist()],
        "best": [None if found is None else found[0] for found in best(square, metric)],
    }


def _differences(known: Sequence[tuple[int, Pair]]) -> Iterator[Figure]:
    """Yield each metric's difference by depth: a line for each pair."""
    rows = {at: differences(pair) for at, pair in known}
    keys = dict.fromkeys(key for found in rows.values() for key in zip(found["metric"], found["variant"], strict=True))
    several = [metric for metric, _ in keys]
    for metric, variant in keys:
        lines = [line for at, pair in known if (line := _line(at, pair, _of(rows[at], metric, variant))) is not None]
        title = capital(titled(metric, variant if several.count(metric) > 1 else None))
        if lines:
            text = "; ".join(f"{line['told'][-1]} at the last layer" for line in lines)
            yield Figure(
                f"{title}: difference", "curve", text, {"log": False, "lines": lines}, DIFFERENCE, unit_apart(metric)
            )


def _of(rows: pd.DataFrame, metric: str, variant: str | None) -> pd.DataFrame:
    same = rows["variant"].isna() if variant is None else rows["variant"] == variant
    return rows[(rows["metric"] == metric) & same & rows["value"].notna()]


def _line(at: int, pair: Pair, rows: pd.DataFrame) -> Json | None:
    if not len(rows):
        return None
    short, site = ("layer", "site") if pair.a.depth <= pair.b.depth else ("layer_b", "site_b")
    points = rows.to_dict(orient="records")
    metric = str(points[0]["metric"])
    repeated = len(points) > 1 and points[-1][short] == points[-2][short]
    values = [scale_of(metric) * float(row["value"]) for row in points]
    errors = [scale_of(metric) * float(row["stderr"]) for row in points]
    sure = np.abs(values) > SURE * np.nan_to_num(errors, nan=np.inf)
    inside = [i for i in range(len(points) - repeated) if sure[i] and points[i]["layer"] and points[i]["layer_b"]]
    return {
        "run": at,
        "pooling": None,
        "named": f"{plain(pair.b.name)} less {plain(pair.a.name)}"
        + (", paired by sample" if all(row["paired"] for row in points) else ""),
        "counted": f"N: {int(rows['n'].max()):,}",
        "layers": [int(row[short]) for row in points],
        "sites": [str(row[site]) for row in points],
        "values": values,
        "errors": errors,
        "raw": [float(row["value"]) for row in points],
        "stderr": [float(row["stderr"]) for row in points],
        "told": [_point(pair, row) for _, row in rows.iterrows()],
        "final": repeated,
        "stands_out": int(points[max(inside, key=lambda i: abs(values[i]))][short]) if inside else None,
        "baseline": None,
    }


def _point(pair: Pair, row: pd.Series[Any]) -> str:
    a, b = layer_label(row["layer"], row["site"], pair.a), layer_label(row["layer_b"], row["site_b"], pair.b)
    where = "" if a == b else f" ({layer_name(b)} of {plain(pair.b.name)} less {layer_name(a)} of {plain(pair.a.name)})"
    return difference_text(row) + where


def _series(entry: ShownComparison) -> Iterator[Figure]:
    """Yield maps of layers by checkpoints: similarity to the last and the one before beside each other, metrics."""
    if not entry.comparison.series:
        return
    names = checkpoints(entry.comparison)
    of_runs = dict(zip([member.name for member in entry.comparison.runs], names, strict=True))
    for metric, title, values in maps(entry.comparison):
        scaled = scale_of(metric) * as_values(values)
        choice = {
            "run": entry.first,
            "series": entry.name,
            "choice": "",
            "unit": about(metric).unit,
            "log": metric in ("perplexity", "nc1"),
            "across": "checkpoint",
            "layers": [str(layer) for layer in values.index],
            "steps": [of_runs[name] for name in values.columns],
            "values": [[round(value, DIGITS) for value in line] for line in scaled.tolist()],
        }
        text = f"A heat map of layers by checkpoints. {about(metric).meaning}"
        yield Figure(
            f"{title} by checkpoint" if "checkpoint" not in title else title, "checkpoints", text,
            {"choices": [choice], "places": [0]}, about(metric), about(metric).unit,
        )  # fmt: skip


def _matches(known: Sequence[tuple[int, Pair]]) -> Table:
    """Return for each layer of the first run the one most like it in the other, and the one at the same depth."""
    rows, columns = [], []
    metrics = list(dict.fromkeys(name for _, pair in known for name in pair.comparison.similarities))
    for metric in metrics:
        name = similarity_name(metric)
        columns += [("most like", name), (name, "most like"), (name, "same depth")]
    for at, pair in known:
        squares = {name: pair.square(name) for name in pair.comparison.similarities}
        for i, layer in enumerate(next(iter(squares.values())).index):
            cells: list[Json | None] = []
            for metric in metrics:
                cells += _match(pair, squares[metric], metric, i) if metric in squares else [None] * 3
            order = pair.a.depth + 0.5 if layer == "final" else layer
            rows.append({"run": at, "name": str(layer), "place": order, "cells": cells})
    lead = "For each layer of the first run the most similar one of the other, and the one at the same depth."
    told = [{"title": title, "detail": detail} for title, detail in columns]
    return Table("matches", "Layers that match", lead, "layer", told, rows)


def _match(pair: Pair, square: pd.DataFrame, metric: str, i: int) -> list[Json | None]:
    found, same = best(square, metric)[i], pair.beside(square)[i]
    value = float(square.iloc[i, same])
    beside_it = (
        None if value != value else {"value": value, "told": f"{shown(value)} ({layer_name(square.columns[same])})"}
    )
    if found is None:
        return [None, None, beside_it]
    layer = square.columns[found[0]]
    order = pair.b.depth + 0.5 if layer == "final" else layer
    return [{"value": order, "told": str(layer)}, {"value": found[1], "told": shown(found[1])}, beside_it]

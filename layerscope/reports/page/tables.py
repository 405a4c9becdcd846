"""From runs to the two tables of the page: a row for each layer, and a row for each number."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pandas as pd

from layerscope.reports.page.content import SECTIONS, Json, Shown, Table
from layerscope.runs.curves import Curve, told
from layerscope.runs.registry import about, rank
from layerscope.runs.titles import titled
from layerscope.show.plain import pooling_name


def layers_table(runs: Sequence[Shown]) -> Table:
    """Return every metric by layer: a row for each run and layer (and `final`), a column for each metric."""
    order = {needs: i for i, (kinds, _, _) in enumerate(SECTIONS.values()) for needs in kinds}
    keys = list(dict.fromkeys(_key(curve) for entry in runs for curve in entry.curves))
    keys.sort(key=lambda key: (order[about(key[0]).needs], rank(key[0])))
    rows = [row for i, entry in enumerate(runs) for row in _rows(i, entry, keys)]
    known = {_key(curve): curve for entry in runs for curve in entry.curves}
    columns = [_heading(known[key], list(known.values())) for key in keys]
    lead = "A row for each layer; a heading sorts."
    lead += " Marked cells are the layers that stand out in a metric." if columns else ""
    return Table("layers", "Every layer", lead, "layer", columns, rows)


def _key(curve: Curve) -> tuple[str, str | None, str | None]:
    return curve.metric, curve.variant, curve.pooling


def _heading(curve: Curve, beside: Sequence[Curve]) -> Json:
    title = titled(curve.metric)
    same = [other for other in beside if other.metric == curve.metric]
    details = [curve.unit]
    if len({other.variant for other in same}) > 1 and curve.variant:
        details.append(curve.variant)
    if len({other.pooling for other in same}) > 1 and curve.pooling:
        details.append(pooling_name(curve.pooling))
    return {"title": title, "detail": ", ".join(filter(None, details))}


def _rows(index: int, entry: Shown, keys: list[tuple[str, str | None, str | None]]) -> list[Json]:
    known = {_key(curve): curve for curve in entry.curves}
    depth = entry.run.depth
    final = any(curve.final is not None for curve in entry.curves)
    places: list[tuple[str, float]] = [(str(layer), layer) for layer in range(entry.run.columns[0].layer, depth + 1)]
    places += [("final", depth + 0.5)] if final else []
    return [
        {"run": index, "name": name, "place": place, "cells": [_cell(known.get(key), name) for key in keys]}
        for name, place in places
    ]


def _cell(curve: Curve | None, layer: str) -> Json | None:
    """Return a value in its unit, as it is told, and whether it is marked; None where there is none."""
    if curve is None or (layer == "final" and curve.final is None):
        return None
    value, stderr = curve.last() if layer == "final" else curve.at(int(layer))
    if math.isnan(value) and (layer == "final" or int(layer) not in curve.layers):
        return None
    text = told(curve, value, stderr).removesuffix(f" {curve.unit}")
    stands_out = layer == str(curve.stands_out)
    return {"value": value * curve.scale, "stderr": stderr * curve.scale, "told": text, "marked": stands_out}


def long_table(runs: Sequence[Shown]) -> list[Json]:
    """Return the long frame of all runs by columns, the run's name first; texts as numbers of a list of texts."""
    if not runs:
        return []
    frames = [entry.run.table().assign(run=entry.name) for entry in runs]
    frame = pd.concat(frames, ignore_index=True)
    names = ["run", *(name for name in frame if name != "run")]
    return [column(name, frame[name]) for name in names]


def column(name: str, values: pd.Series) -> Json:  # type: ignore[type-arg]
    """Return a column of a long frame, its texts as numbers of a list of texts."""
    if values.dtype == object or isinstance(values.dtype, pd.StringDtype):
        texts = list(values.dropna().unique())
        places: dict[Any, int] = {text: i for i, text in enumerate(texts)}
        return {"name": name, "texts": texts, **_short([places.get(value) for value in values])}
    return {"name": name, **_short([None if pd.isna(value) else value for value in values.tolist()])}


def _short(values: list[Any]) -> Json:
    """Return values as a list, or once where all are the same."""
    return {"all": values[0]} if values and all(value == values[0] for value in values) else {"values": values}

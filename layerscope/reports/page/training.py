"""From histories of trainings to what the page draws of them: layers by steps, lines by step, depth and the clock."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pandas as pd

from layerscope.reports.page.content import Figure, Json, Section, Shown, Table, beside
from layerscope.runs.depths import depths
from layerscope.runs.registry import about
from layerscope.runs.titles import capital
from layerscope.show.numbers import error, number
from layerscope.show.plain import plain

LAYERS = ("layer_accuracy", "perplexity", "cosine_similarity")
"""What is drawn as a map of layers by steps."""
COURSES = ("cross_entropy", "effective_depth")
"""What is drawn by step: at the last layer, and of the whole."""
LOG = ("perplexity",)


def training_sections(runs: Sequence[Shown]) -> list[Section]:
    """Return what went on by step, and what depth buys; none for runs without steps."""
    known = [(i, entry) for i, entry in enumerate(runs) if entry.run.steps]
    rows = (tuple(_courses(known)), tuple(_maps(known)))
    found = []
    if known:
        lead = (
            "At each evaluation: what the whole model has, and every layer read through the model's head. What follows "
            "by layer alone is that of the last step."
        )
        found.append(Section("training", "Training", lead, tuple(row for row in rows if row)))
    return [*found, *_clock(runs)]


def _maps(known: Sequence[tuple[int, Shown]]) -> Iterator[Figure]:
    """Yield layers by steps, a map for each run: accuracy (of a language model perplexity), and cosine to the last."""
    for name in LAYERS:
        choices = [_map(i, entry, name) for i, entry in known if _drawn(entry, name)]
        title = {"layer_accuracy": "accuracy", "cosine_similarity": "cosine to the last layer"}.get(name, name)
        text = f"A heat map of layers by steps. {about(name).meaning}"
        yield from beside("grid", f"{capital(title)} by step", text, choices, about(name), about(name).unit)


def _drawn(entry: Shown, name: str) -> bool:
    language_model = bool(entry.run.info["model"].get("language_model"))
    return name == "cosine_similarity" or language_model == (name == "perplexity")


def _map(index: int, entry: Shown, name: str) -> Json:
    table = entry.run.table()
    rows = table[table["metric"] == name]
    values = rows.pivot_table(index="layer", columns="step", values="value") * _scale(name)
    return {
        "run": index,
        "choice": "",
        "unit": about(name).unit,
        "log": name in LOG,
        "layers": [int(layer) for layer in values.index],
        "steps": [int(step) for step in values.columns],
        "values": values.to_numpy().tolist(),
    }


def _courses(known: Sequence[tuple[int, Shown]]) -> Iterator[Figure]:
    """Yield lines by step, one for each run."""
    for name in COURSES:
        lines = [line for i, entry in known if (line := _course(i, entry, name))["steps"]]
        if lines:
            title = "Loss of the last layer" if name == "cross_entropy" else "Effective depth"
            ends = "; ".join(f"{line['told'][-1]} at step {line['steps'][-1]:,}" for line in lines)
            drawn = {"lines": lines, "whole": name == "effective_depth"}
            yield Figure(f"{title} by step", "course", ends, drawn, about(name), about(name).unit or "layers")


def _course(index: int, entry: Shown, name: str) -> Json:
    table = entry.run.table()
    rows = table[(table["metric"] == name) & (table["layer"] == entry.run.depth)]
    if name == "effective_depth":
        rows = rows[rows["variant"].str.startswith("relative_to=last").astype(bool)]
    rows = rows.sort_values("step")
    points = list(zip(rows["value"], rows["stderr"], strict=True))
    return {
        "run": index,
        "pooling": None,
        "named": "",
        "counted": f"N: {int(rows['n'].max()):,}" if len(rows) else "",
        "steps": [int(step) for step in rows["step"]],
        "values": list(rows["value"]),
        "errors": list(rows["stderr"]),
        "told": [" ".join(filter(None, (number(value), error(stderr)))) for value, stderr in points],
    }


def _clock(runs: Sequence[Shown]) -> Iterator[Section]:
    """Yield the section on what depth buys, where a run has what `train` measured of it."""
    found = [(i, entry, table) for i, entry in enumerate(runs) if (table := depths(entry.run)) is not None]
    parts = [_called(i, entry, table, several=len(found) > 1) for i, entry, table in found if len(table)]
    if not parts:
        return
    table = pd.concat(parts, ignore_index=True)
    figures = [figure for name in table["metric"].unique() for figure in _of_metric(table[table["metric"] == name])]
    lead = "Every model at each of its depths, and the time a sample takes to get there: up and to the left is better."
    lead += " (Perplexity: down.)" if "perplexity" in set(table["metric"]) else ""
    yield Section("clock", "Depth and the clock", lead, (tuple(figures),), (_table(table),))


def _called(index: int, entry: Shown, table: pd.DataFrame, several: bool) -> pd.DataFrame:
    """Return a run's rows with the names its lines have on the page."""
    names = [plain(str(name)) for name in table["name"]]
    return table.assign(run=index, name=[f"{entry.name}: {name}" for name in names] if several else names)


def _of_metric(table: pd.DataFrame) -> Iterator[Figure]:
    metric = str(table["metric"].iloc[0])
    known = about("layer_accuracy" if metric == "accuracy" else metric)
    unit, title = known.unit, known.title.removeprefix("layer ")
    for across, words in (("layer", "by layer"), ("ms_per_sample", "by time")):
        rows = table[table[across].notna()]
        lines = [
            _line(look, str(name), part.sort_values(across), across, _scale(known.name))
            for look, (name, part) in enumerate(rows.groupby("name", sort=False))
        ]
        if lines:
            text = "; ".join(f"{line['name']}: {line['told'][-1]}" for line in lines)
            drawn = {"lines": lines, "across": across, "log": known.name in LOG}
            yield Figure(f"{capital(title)} {words}", "clock", text, drawn, known, unit)


def _line(look: int, name: str, rows: pd.DataFrame, across: str, scale: float) -> Json:
    return {
        "run": int(rows["run"].iloc[0]),
        "look": look,
        "name": name,
        "pooling": None,
        "named": "",
        "counted": "",
        "depth": float(rows["depth"].max()),
        "x": list(rows[across]),
        "layers": [int(layer) for layer in rows["layer"]],
        "values": list(rows["value"] * scale),
        "errors": list(rows["stderr"] * scale),
        "told": [_point(value, stderr, scale) for value, stderr in zip(rows["value"], rows["stderr"], strict=True)],
    }


def _table(table: pd.DataFrame) -> Table:
    columns = [
        {"title": title, "detail": detail}
        for title, detail in (("layer", ""), ("of", "layers"), ("value", ""), ("time", "ms a sample"), ("size", "MB"))
    ]
    rows = []
    for place, row in enumerate(table.itertuples(index=False)):
        scale = _scale("layer_accuracy" if row.metric == "accuracy" else str(row.metric))
        cells = [_cell(row.layer, f"{row.layer:.0f}"), _cell(row.depth, f"{row.depth:.0f}")]
        cells.append(_cell(row.value * scale, _point(row.value, row.stderr, scale)))
        cells += [_cell(row.ms_per_sample, number(row.ms_per_sample)), _cell(row.megabytes, number(row.megabytes))]
        name = str(row.name) if table["metric"].nunique() == 1 else f"{row.name}, {plain(str(row.metric))}"
        rows.append({"run": row.run, "name": name, "place": place, "cells": cells})
    return Table(
        "depths", "Every model and depth", "A row for each model and layer it ends at.", "model", columns, rows
    )


def _cell(value: float, told: str) -> Json | None:
    return None if value != value else {"value": value, "told": told}


def _point(value: float, stderr: float, scale: float) -> str:
    if scale == 1.0:
        return " ".join(filter(None, (number(value), error(stderr))))
    return f"{scale * value:.1f}" + (f" ±{scale * stderr:.1f}" if stderr == stderr else "") + " %"


def _scale(metric: str) -> float:
    return 100.0 if about(metric).unit == "%" else 1.0

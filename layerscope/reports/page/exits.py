"""From reports of exits to what the page says and draws: accuracy against speed, where samples leave, the forecast."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from layerscope.early_exit.exit_report import ExitReport
from layerscope.early_exit.findings import (
    exits_by_speed,
    findings,
    plain_value,
    threshold,
    truncations,
    value,
    window,
)
from layerscope.metrics.registry import Metric
from layerscope.reports.page.content import Json, Section, Table, beside
from layerscope.show.numbers import number, percent, times
from layerscope.show.plain import plain

PARETO_NOTE = (
    "● exits, a point for each threshold (○ chosen), ■ truncated at a layer, ◆ plain model. Truncated models far below "
    "the exits are in the table alone."
)
JIANG = "Jiang, Zhou, Zhu 2025, Tracing Representation Progression"
PARETO = Metric(
    name="pareto",
    title="accuracy by speed",
    meaning="How many samples a second go through, as a multiple of the plain model's, and how many of their "
    "predictions are right (without labels: are the plain model's). One point for each threshold, and one for the "
    "model truncated at each layer.",
    direction="Up and to the right is better. A truncated model above the line of exits is the better choice.",
    source="measured here",
)
LEAVING = Metric(
    name="leaving",
    title="where samples leave",
    meaning="Of all samples the share that leaves at each layer with the chosen threshold; the rest goes through all "
    "layers.",
    direction="Samples that leave early save time; what the checks cost is part of the measured speed, not of this "
    "figure.",
    source=f"{JIANG}, figure 7",
)
FORECAST = Metric(
    name="forecast",
    title="predicted and measured",
    meaning="Speed-ups predicted from the times of a block, a check and a compaction on this machine, and those "
    "measured.",
    direction="On the diagonal the prediction was right; the dotted lines are 10 % to each side.",
    source="measured here",
)


@dataclass(frozen=True)
class ShownExits:
    """A report of exits as the page shows it: what it is called, and its place among all that have a colour."""

    name: str
    place: int
    report: ExitReport

    @property
    def findings(self) -> list[str]:
        """Verdict, guarantee and what else a sentence tells."""
        return [self.report.verdict, self.report.goal, *findings(self.report)]

    @property
    def facts(self) -> list[tuple[str, str]]:
        """What was run, in texts fit to be shown."""
        return [(name, plain(str(told))) for name, told in _facts(self.report) if told not in (None, "")]

    @property
    def calibration(self) -> list[tuple[str, str]]:
        """What the guarantee rests on, in texts fit to be shown."""
        return [(plain(name), plain(told)) for name, told in _flat(self.report.calibration or {})]

    @property
    def summary(self) -> str:
        """Model and data in numbers, one line."""
        r = self.report
        facts = [f"{r.depth} layers", f"{r.classes:,} classes", f"{r.samples:,} samples", f"batch size {r.batch_size}"]
        return " · ".join([*facts, plain(r.machine)])


def shown_exits(reports: Sequence[ExitReport], first: int) -> list[ShownExits]:
    """Return reports with their names, numbered where two have the same, in places from `first` on."""
    names = [f"{plain(report.model)} on {plain(report.data)}" for report in reports]
    return [
        ShownExits(f"{name} ({names[: i + 1].count(name)})" if names.count(name) > 1 else name, first + i, report)
        for i, (name, report) in enumerate(zip(names, reports, strict=True))
    ]


def exit_members(shown: Sequence[ShownExits]) -> list[Json]:
    """Return what the scripts know of each report: name, depth and colour."""
    return [
        {"name": e.name, "depth": e.report.depth, "alone": len(shown) == 1, "look": e.place, "scores": None}
        for e in shown
    ]


def exit_section(shown: Sequence[ShownExits]) -> Section:
    """Return the section of early exit: plots of each report beside each other, and their tables."""
    rows = (tuple(_pareto(shown)), tuple([*_leaving(shown), *_forecast(shown)]))
    lead = (
        "Samples that are sure leave before the last layer. Times are measured with whole batches, checks and "
        "compaction included."
    )
    tables = [_curve_table(shown), _layers_table(shown), _depths_table(shown)]
    return Section("exits", "Early exit", lead, tuple(row for row in rows if row), tuple(t for t in tables if t.rows))


def _pareto(shown: Sequence[ShownExits]) -> Iterator[Any]:
    labelled = all(e.report.labelled for e in shown)
    title = f"{'Accuracy' if labelled else 'Agreement'} against speed"
    text = "; ".join(f"{e.name}: {percent(value(e.report, labelled))} at {times(e.report.measured)}" for e in shown)
    unit = "% right" if labelled else "% as the plain model"
    for figure in beside("pareto", title, text, [_pareto_choice(e, labelled) for e in shown], PARETO, unit):
        figure.drawn["note"] = PARETO_NOTE
        yield figure


def _pareto_choice(entry: ShownExits, labelled: bool) -> Json:
    report, cut = entry.report, truncations(entry.report, labelled)
    points = exits_by_speed(report, labelled).to_dict(orient="records")
    own, seen = plain_value(report, labelled), window(report, labelled)
    return {
        "run": entry.place,
        "choice": "",
        "what": "accuracy (%)" if labelled else "agreement (%)",
        "window": seen and [list(seen[0]), [100 * share for share in seen[1]]],
        "exits": _points([
            (row["measured"], row["quality"], f"threshold {threshold(row['threshold'])}, mean layer "
             f"{number(row['mean_layer'])}: {percent(row['quality'])}, {times(row['measured'])}") for row in points
        ]),
        "chosen": [bool(row["chosen"]) for row in points],
        "depths": _points([
            (row["measured"], row["quality"],
             f"truncated at layer {row['layer']}: {percent(row['quality'])}, {times(row['measured'])}")
            for row in cut.to_dict(orient="records")
        ]),
        "layers": [int(layer) for layer in cut["layer"]],
        "plain": _points([(1.0, own, f"plain model: {percent(own)}, 1×")]),
    }  # fmt: skip


def _points(points: list[tuple[float, float, str]]) -> Json:
    return {"x": [x for x, _, _ in points], "y": [100 * y for _, y, _ in points], "told": [told for *_, told in points]}


def _leaving(shown: Sequence[ShownExits]) -> Iterator[Any]:
    choices = [
        {
            "run": e.place,
            "choice": "",
            "layers": list(e.report.layers["layer"]),
            "checked": list(e.report.layers["checked"]),
            "leaving": list(e.report.layers["leaving"]),
            "shares": list(100 * e.report.layers["share"]),
            "cumulative": list(100 * e.report.layers["cumulative"]),
            "samples": e.report.samples,
        }
        for e in shown
        if len(e.report.layers)
    ]
    text = "Bars: the share of samples that leaves at each layer; a line: the share that has left so far."
    for figure in beside("leaving", "Where samples leave", text, choices, LEAVING, "% of samples"):
        figure.drawn["note"] = (
            "Bars: samples that leave at a layer (pale: those that go through all). Line: left so far."
        )
        yield figure


def _forecast(shown: Sequence[ShownExits]) -> Iterator[Any]:
    choices = []
    for e in shown:
        rows = e.report.curve.dropna(subset=["predicted", "measured"])
        if not len(rows):
            continue
        told = [
            f"threshold {threshold(row['threshold'])}: {times(row['predicted'])} predicted, {times(row['measured'])} "
            "measured"
            for row in rows.to_dict(orient="records")
        ]
        choices.append({
            "run": e.place, "choice": "", "predicted": list(rows["predicted"]), "measured": list(rows["measured"]),
            "chosen": list(rows["chosen"]), "told": told,
        })  # fmt: skip
    text = "; ".join(
        f"{e.name}: {times(e.report.predicted)} predicted, {times(e.report.measured)} measured" for e in shown
    )
    for figure in beside("forecast", "Predicted and measured speed", text, choices, FORECAST, "× the plain model"):
        figure.drawn["note"] = "A point for each threshold, ● the chosen one. Dotted: 10 % to each side."
        yield figure


def _curve_table(shown: Sequence[ShownExits]) -> Table:
    scored = any(e.report.labelled for e in shown)
    columns = [
        ("mean layer", ""), ("by depth", "speed-up"), ("predicted", "speed-up"), ("measured", "speed-up"),
        *([("accuracy", "%")] if scored else []), ("differ", "% of predictions"),
    ]  # fmt: skip
    rows = []
    for e in shown:
        for place, row in enumerate(e.report.curve.to_dict(orient="records")):
            cells = [_cell(row["mean_layer"], number(row["mean_layer"]))]
            cells += [_cell(row[name], times(row[name])) for name in ("exit_speedup", "predicted", "measured")]
            cells += [_percent(row["accuracy"])] if scored else []
            cells.append(_percent(row["disagreement"], 2))
            marked = [cell and {**cell, "marked": bool(row["chosen"])} for cell in cells]
            rows.append({"run": e.place, "name": threshold(row["threshold"]), "place": place, "cells": marked})
    lead = "A row for each threshold, the chosen one marked. By depth: Σ L·mᵢ / Σ i·mᵢ for mᵢ samples that leave at i."
    return _made("exit-curve", "By threshold", lead, "threshold", columns, rows)


def _layers_table(shown: Sequence[ShownExits]) -> Table:
    scored = any(e.report.labelled for e in shown)
    columns = [
        ("leave", "samples"), ("share", "%"), ("so far", "%"), *([("accuracy", "% of all, there")] if scored else []),
        ("agree", "% of all, there"),
    ]  # fmt: skip
    rows = []
    for e in shown:
        for row in e.report.layers.to_dict(orient="records"):
            counted = row["checked"] or row["layer"] == e.report.depth
            cells = [_cell(row["leaving"], f"{row['leaving']:,}") if counted else None]
            cells += [_percent(row["share"]) if counted else None, _percent(row["cumulative"])]
            cells += [_percent(row["layer_accuracy"])] if scored else []
            cells.append(_percent(row["layer_agreement"]))
            marked = [cell and {**cell, "marked": bool(row["checked"])} for cell in cells]
            rows.append({"run": e.place, "name": str(row["layer"]), "place": row["layer"], "cells": marked})
    lead = "A row for each layer, the exits marked: how many leave there, and what all samples would score there."
    return _made("exit-layers", "By layer", lead, "layer", columns, rows)


def _depths_table(shown: Sequence[ShownExits]) -> Table:
    scored = any(e.report.labelled for e in shown)
    columns = [*([("accuracy", "%")] if scored else []), ("differ", "% of predictions"), ("measured", "speed-up")]
    columns.append(("parameters", ""))
    rows = []
    for e in shown:
        for row in e.report.depths.to_dict(orient="records"):
            cells = [_percent(row["accuracy"])] if scored else []
            cells += [_percent(row["disagreement"]), _cell(row["measured"], times(row["measured"]))]
            cells.append(_cell(row["parameters"], f"{row['parameters']:,}"))
            rows.append({"run": e.place, "name": str(row["layer"]), "place": row["layer"], "cells": cells})
    lead = "The rival: every sample leaves at the same layer, and the layers above it are gone."
    return _made("exit-depths", "The model truncated instead", lead, "layer", columns, rows)


def _made(id: str, title: str, lead: str, head: str, columns: list[tuple[str, str]], rows: list[Json]) -> Table:  # noqa: A002
    return Table(id, title, lead, head, [{"title": name, "detail": detail} for name, detail in columns], rows)


def _cell(found: float, told: str) -> Json | None:
    return None if pd.isna(found) else {"value": found, "told": told}


def _percent(share: float, digits: int = 1) -> Json | None:
    return _cell(100 * share, f"{100 * share:.{digits}f}")


def _facts(report: ExitReport) -> Iterator[tuple[str, object]]:
    yield "model", report.model
    yield "data", report.data
    yield "samples", f"{report.samples:,}, the exits chosen on {report.design:,}"
    yield "exits", ", ".join(map(str, report.exits)) or "none"
    yield "criterion", report.criterion
    yield "threshold", threshold(report.threshold)
    yield "batch size", report.batch_size
    yield "machine", report.machine
    yield "guarantee", report.goal
    yield "exit model", report.path


def _flat(told: dict[str, Any], above: str = "") -> Iterator[tuple[str, str]]:
    for key, entry in told.items():
        name = above + str(key).replace("_", " ")
        if isinstance(entry, dict):
            yield from _flat(entry, f"{name}, ")
        elif isinstance(entry, (list, tuple)):
            yield name, ", ".join(map(str, entry)) or "–"
        elif isinstance(entry, float):
            yield name, number(entry)
        else:
            yield name, "–" if entry is None else str(entry)

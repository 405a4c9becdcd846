"""From scores of layers on tasks to the tables of the page: a summary, layer × task, correlations, every score."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from layerscope.reports.correlations import NAMES, Correlation
from layerscope.reports.page.content import Json, Table
from layerscope.reports.page.shown_scores import ShownScores, resampled
from layerscope.reports.page.tables import column
from layerscope.scores.findings import score_findings
from layerscope.scores.scored import AVERAGE, SHIPPED, SHOWN, Score, Scored, Unit, summary
from layerscope.scores.summary import VARIANT
from layerscope.show.plain import plain


def summary_table(shown: ShownScores) -> Iterator[Table]:
    """Yield the summary of every series, where there is an average."""
    rows = summary(shown.evaluation)
    if not rows:
        return
    names = [name for name in SHOWN if any(not _missing(row[name]) for row in rows)]
    counts = ("layers", "tasks", "missing")
    cells = [
        [_summed(shown, row, name) for name in names]
        + [{"value": row[name], "told": f"{row[name]:,}"} for name in counts]
        for row in rows
    ]
    lead = (
        "First, mean over layers, best (with its layer) and last of the average; the oracle takes each task's own best "
        f"layer"
        f"{'; as shipped is the model as its makers serve it' if 'baseline' in names else ''}."
    )
    columns = [{"title": SHOWN.get(name, name), "detail": ""} for name in (*names, *counts)]
    yield Table(
        "summary", "Summary", lead, None, columns,
        [{"run": shown.first + i, "name": "", "place": i, "cells": found} for i, found in enumerate(cells)],
    )  # fmt: skip


def _summed(shown: ShownScores, row: dict[str, Any], name: str) -> Json | None:
    if _missing(row[name]):
        return None
    layer = f" ({row[f'{name}_layer']})" if name.startswith("best") else ""
    return {"value": float(row[name]), "told": shown.told(float(row[name])) + layer}


def _missing(value: Any) -> bool:
    return value is None or value != value or str(value) == "<NA>"


def tasks_table(shown: ShownScores) -> Table:
    """Return the scores by layer and task: a row for each series and layer, and for its model as shipped."""
    tasks = list(dict.fromkeys(task for entry in shown.entries for task in entry.tasks))
    rows = [row for i, entry in enumerate(shown.entries) for row in _task_rows(shown, i, entry, tasks)]
    average = [{"title": AVERAGE, "detail": ""}] if len(tasks) > 1 else []
    columns = average + [{"title": plain(task), "detail": ""} for task in tasks]
    marked = "The best layer of each task is marked; a heading sorts."
    return Table("by-task", "Layer by task", marked, "layer", columns, rows)


def _task_rows(shown: ShownScores, i: int, entry: Scored, tasks: list[str]) -> Iterator[Json]:
    average, best = entry.average, {task: entry.best_on(task) for task in entry.tasks}
    shipped: list[int | None] = [None] if len(entry.grid.baseline) else []
    for layer in [*entry.layers, *shipped]:
        mean = entry.shipped if layer is None else average.get(layer, math.nan)
        first = [_cell(shown, Score(mean), layer is not None and layer == entry.best)] if len(tasks) > 1 else []
        cells = [_cell(shown, entry.at(layer, task), layer is not None and best.get(task) == layer) for task in tasks]
        name, place = (SHIPPED, max(entry.layers) + 1) if layer is None else (str(layer), layer)
        yield {"run": shown.first + i, "name": name, "place": place, "cells": first + cells}


def _cell(shown: ShownScores, score: Score, marked: bool) -> Json | None:
    if math.isnan(score.value):
        return None
    error = {"stderr": score.stderr, "low": score.low, "high": score.high}
    return {"value": score.value, "told": shown.told(score), "marked": marked} | {
        key: value for key, value in error.items() if math.isfinite(value)
    }


def correlation_table(shown: ShownScores) -> Iterator[Table]:
    """Yield how each metric of the runs goes with the average score, where a run is of a model that has scores."""
    if not shown.pairings:
        return
    names = list(shown.pairings[0].metrics[0].found)
    rows = [
        {
            "run": pairing.scored + shown.first,
            "name": metric.title,
            "place": i,
            "cells": [*(_correlated(metric.found[name]) for name in names), _signed(metric.by_task)],
        }
        for pairing in shown.pairings
        for i, metric in enumerate(pairing.metrics)
    ]
    lead = (
        f"Each metric of the run by layer, with the average score. {resampled(shown)} By task: the tasks' own "
        f"{NAMES[names[0]]}, averaged. Distance correlation has no sign and is above 0 for noise. Of many metrics some "
        "correlate by chance."
    )
    columns = [{"title": NAMES[name], "detail": "95 % interval"} for name in names]
    columns += [{"title": "by task", "detail": NAMES[names[0]]}]
    yield Table("correlations", "Metrics of the run and scores", lead, "metric", columns, rows)


def _correlated(found: Correlation) -> Json | None:
    if math.isnan(found.estimate):
        return None
    cell = _signed(found.estimate) or {}
    if math.isfinite(found.low):
        between = f"{_sign(found.low)} … {_sign(found.high)}"
        cell |= {"low": found.low, "high": found.high, "told": f"{cell['told']} ({between})"}
    return cell


def _signed(value: float) -> Json | None:
    return None if math.isnan(value) else {"value": value, "told": _sign(value)}


def _sign(value: float) -> str:
    return f"{value:+.2f}".replace("-", "−")


def score_frame(shown: ShownScores) -> tuple[list[Json], list[int]]:
    """Return the long frame of scores by columns, and which series each row is of (a baseline: its model's first)."""
    frame = shown.evaluation.scores
    places = {tuple(entry.grid.about[key] for key in VARIANT): i for i, entry in reversed([*enumerate(shown.entries)])}
    firsts = {key[:2]: i for key, i in places.items()}
    keys = zip(*(frame[key] for key in VARIANT), strict=True)
    of = [shown.first + places.get(key, firsts.get(key[:2], 0)) for key in keys]
    return [column(name, frame[name]) for name in frame], of


def score_facts(shown: ShownScores) -> list[Json]:
    """Return what was judged: a name, facts in pairs and tasks for each series."""
    found = []
    for i, entry in enumerate(shown.entries):
        about_it, grid = entry.grid.about, entry.grid
        facts = {
            "revision": about_it["revision"] or "–",
            "site": about_it["site"] or "–",
            "pooling": about_it["pooling"] or "–",
            "layers": f"{len(entry.layers):,}, {entry.layers[0]} to {entry.layers[-1]}",
            "left out": ", ".join(map(str, grid.left_out)) or "none",
            "missing scores": f"{grid.missing:,} of {grid.scores.size:,}",
            f"tasks ({len(entry.tasks):,})": ", ".join(map(plain, entry.tasks)),
        }
        found.append(
            {
                "name": entry.name,
                "facts": [(key, plain(str(value))) for key, value in facts.items()],
                "findings": score_findings(entry, Unit(shown.decimals)),
                "place": shown.first + i,
            }
        )
    return found

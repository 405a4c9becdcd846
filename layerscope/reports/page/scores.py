"""From scores of layers on tasks to what the page draws of them, beside a run's metrics where it has both."""

from __future__ import annotations

import math
from collections.abc import Iterator

from layerscope.reports.correlations import NAMES
from layerscope.reports.page.content import SIDE_BY_SIDE, Figure, Json, Section
from layerscope.reports.page.score_tables import correlation_table, summary_table, tasks_table
from layerscope.reports.page.shown_scores import ShownScores, judged_on, resampled
from layerscope.runs.registry import about
from layerscope.scores.scored import Scored, shared_site
from layerscope.show.plain import plain


def score_section(shown: ShownScores) -> Section:
    """Return the section of scores: average by depth, layers by tasks, and how the runs' metrics go with them."""
    intervals = list(_intervals(shown))
    beside = [figure for figure in intervals if figure.plots == 1]
    rows = (
        tuple([*_averages(shown), *beside]),
        tuple(_by_task(shown)),
        tuple(figure for figure in intervals if figure not in beside),
        tuple(_scatters(shown)),
    )
    tables = [*summary_table(shown), tasks_table(shown), *correlation_table(shown)]
    return Section("scores", "Scores on tasks", _lead(shown), tuple(row for row in rows if row), tuple(tables))


def _lead(shown: ShownScores) -> str:
    missing = f"{shown.evaluation.missing:,} scores are missing. " if shown.evaluation.missing else ""
    return (
        f"In the units of the tasks' own main scores. {missing}Averages run over the tasks that every layer has; layer "
        "0, the embedding output, is shown and is no candidate for the best one. A layer chosen on scores looks better "
        "on them than it is: expect less elsewhere."
    )


def _averages(shown: ShownScores) -> Iterator[Figure]:
    lines = [_line(shown, i, entry) for i, entry in enumerate(shown.entries) if entry.average]
    if lines:
        text = "; ".join(
            f"{entry.name}: {shown.told(entry.average[entry.best])} at layer {entry.best}, the best"
            for entry in shown.entries
            if entry.best is not None
        )
        yield Figure(
            "Average score by layer",
            "curve",
            text,
            {"log": False, "lines": lines, "about": judged_on(shown)},
            about("score"),
            "score",
        )


def _line(shown: ShownScores, i: int, entry: Scored) -> Json:
    average, blank = entry.average, [math.nan] * len(entry.average)
    place = shared_site(shown.evaluation.scores)
    tasks, where = entry.grid.complete.shape[1], entry.grid.about
    values = list(average.values())
    return {
        "run": shown.first + i,
        "pooling": where["pooling"],
        "named": "",
        "counted": " · ".join(filter(None, (f"mean of {tasks:,} tasks" if tasks > 1 else "1 task", place))),
        "layers": list(average),
        "sites": [where["site"]] * len(average),
        "values": values,
        "errors": blank,
        "raw": values,
        "stderr": blank,
        "told": [shown.told(value) for value in values],
        "final": False,
        "stands_out": entry.best,
        "baseline": {"value": entry.shipped, "told": shown.told(entry.shipped)}
        if math.isfinite(entry.shipped)
        else None,
    }


def _by_task(shown: ShownScores) -> Iterator[Figure]:
    choices = [_square(shown, i, entry) for i, entry in enumerate(shown.entries)]
    text = "A heat map: the score of every layer on every task, as the difference to one reference a task."
    drawn = {"choices": choices, "places": list(range(len(choices)))[:SIDE_BY_SIDE], "about": judged_on(shown)}
    yield Figure("Every layer on every task", "tasks", text, drawn, about("score"))


def _square(shown: ShownScores, i: int, entry: Scored) -> Json:
    tasks, layers = entry.tasks, entry.layers
    return {
        "run": shown.first + i,
        "choice": "",
        "rows": [plain(task) for task in tasks],
        "layers": layers,
        "values": [[entry.at(layer, task).value for layer in layers] for task in tasks],
        "reference": [entry.reference(task) for task in tasks],
        "compared": entry.compared_with,
        "best": [entry.best_on(task) for task in tasks],
        "decimals": shown.decimals,
    }


def _intervals(shown: ShownScores) -> Iterator[Figure]:
    choices: list[Json] = []
    places: list[int] = []
    for pairing in shown.pairings:
        places.append(len(choices))
        several = sum(other.run == pairing.run for other in shown.pairings) > 1
        scores = f"{shown.entries[pairing.scored].name}: " if several else ""
        for name in pairing.metrics[0].found:
            found = [metric.found[name] for metric in pairing.metrics]
            choices.append(
                {
                    "run": pairing.run,
                    "choice": scores + NAMES[name],
                    "statistic": NAMES[name],
                    "rows": [metric.title for metric in pairing.metrics],
                    "values": [each.estimate for each in found],
                    "low": [each.low for each in found],
                    "high": [each.high for each in found],
                }
            )
    if choices:
        text = f"Bars: the correlation of each metric by layer with the average score. {resampled(shown)}"
        drawn = {"choices": choices, "places": places[:SIDE_BY_SIDE], "note": resampled(shown)}
        yield Figure("Metrics and scores", "intervals", text, drawn, about("score"))


def _scatters(shown: ShownScores) -> Iterator[Figure]:
    choices: list[Json] = []
    places: list[int] = []
    several = len(shown.pairings) > 1
    for pairing in shown.pairings:
        average = shown.entries[pairing.scored].average
        for i, metric in enumerate(pairing.metrics):
            if i == 0 or not several and i < SIDE_BY_SIDE:
                places.append(len(choices))
            layers = [layer for layer in metric.values if layer in average]
            scores = f", {shown.entries[pairing.scored].name}" if len(shown.entries) > 1 else ""
            choices.append(
                {
                    "run": pairing.run,
                    "choice": metric.title + scores,
                    "named": metric.title,
                    "layers": layers,
                    "x": [metric.values[layer] for layer in layers],
                    "y": [average[layer] for layer in layers],
                }
            )
    if choices:
        text = "Points: a layer each, numbered; a metric and the average score."
        drawn = {"choices": choices, "places": places[:SIDE_BY_SIDE]}
        yield Figure("A metric against the average score", "scatter", text, drawn, about("score"))

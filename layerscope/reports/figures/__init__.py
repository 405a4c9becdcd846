"""The figures of runs over each other, and of scores on tasks, ready for a paper: PNG and PDF, in one style."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from layerscope.comparison.comparison import Comparison
from layerscope.core.errors import LayerscopeError
from layerscope.early_exit.exit_report import ExitReport
from layerscope.reports.figures.member import Key, Member, keys
from layerscope.runs.curves import curves, panels
from layerscope.runs.names import run_names
from layerscope.runs.registry import METRICS
from layerscope.runs.run import Run
from layerscope.scores.evaluation import Evaluation
from layerscope.scores.scored import scored
from layerscope.show.document import Chart, Document

Drawer = Callable[[float], Any]
"""Draws a figure of a width in inches."""


def draw(
    runs: Run | Sequence[Run],
    folder: str | Path,
    names: Sequence[str] | None = None,
    evaluation: Evaluation | None = None,
    exits: Sequence[ExitReport] = (),
    comparisons: Sequence[Comparison] = (),
) -> list[Path]:
    """Draw the figures of one run, or of several over each other, into a folder and return the paths of the files.

    Every figure is there as `NAME.png` and `NAME.pdf`, 6.3 inches wide, and laid out anew for a column of 3.15 inches
    as `NAME-column.png` and `NAME-column.pdf`: `curves`; where pairs of layers were compared, a map for each similarity
    by its name, as `cka`, and `cosine_to_last`; `sublayers` of one run that has them; `saturation` where a model has a
    head. Beside them each metric alone, as wide as a column: `curve-METRIC.png` and `curve-METRIC.pdf`.

    Several runs lie over each other by depth in percent, told apart by colour, dash and marker, and are called `names`,
    or what tells them apart; maps, boxes and saturation have a panel for each run. An evaluation, with runs or without,
    adds `scores` (the average by depth), `scores_by_task`, and `correlations` where a run is of the same model; exits
    add `exits_accuracy_against_speed` (truncated models beside it), `exits_where_samples_leave` and
    `exits_predicted_and_measured_speed`;
    comparisons add `compared_METRIC` for each similarity of layers across runs, `differences`, and for a series of
    checkpoints `checkpoints`.

    Raises `LayerscopeError` where matplotlib is missing, the folder cannot be written, or there is nothing to draw.
    """
    try:
        from layerscope.reports.figures import style
    except ImportError:
        raise LayerscopeError('figures need matplotlib: pip install "layerscope[figures]"') from None
    given = [runs] if isinstance(runs, Run) else list(runs)
    drawers: list[tuple[str, Drawer]] = []
    single: list[tuple[str, Drawer]] = []
    if given or (evaluation is None and not exits and not comparisons):
        members = _members(given, names)
        drawers, single = list(_drawers(members)), list(_single(members))
    if evaluation is not None:
        drawers += _of_scores(given, evaluation)
    if exits:
        drawers += _of_documents([report.document() for report in exits], "exits")
    if comparisons:
        drawers += _of_comparisons(comparisons)
    target = Path(folder)
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LayerscopeError(
            f"figures cannot be written to {str(folder)!r}: {error.strerror}; give another folder"
        ) from None
    written: list[Path] = []
    with style.styled():
        for name, drawer in drawers:
            written += style.save(drawer(style.TEXT_WIDTH), target, name)
            written += style.save(drawer(style.COLUMN_WIDTH), target, f"{name}-column")
        for name, drawer in single:
            written += style.save(drawer(style.COLUMN_WIDTH), target, name)
    return written


def _members(runs: list[Run], names: Sequence[str] | None) -> list[Member]:
    """Return the runs with their names and curves; an error where there is none."""
    names = run_names(runs) if names is None else list(names)
    if len(names) != len(runs):
        raise LayerscopeError(f"{len(runs)} runs have {len(names)} names: give as many names as runs")
    alone = len(runs) == 1
    known = [panels(curves(run)) for run in runs]
    members = [Member(run, names[i], i, alone, known[i]) for i, run in enumerate(runs)]
    if not any(known):
        held = f"run {str(runs[0].path)!r} holds" if alone else "these runs hold"
        raise LayerscopeError(f"{held} no metric by layer: there is nothing to draw")
    return members


def _drawers(members: list[Member]) -> Iterator[tuple[str, Drawer]]:
    """Yield the name of each figure there is something for, and what draws it."""
    from layerscope.reports.figures.boxes import draw_boxes
    from layerscope.reports.figures.lines import draw_curves
    from layerscope.reports.figures.pairs import draw_pairs
    from layerscope.reports.figures.saturation import draw_saturation
    from layerscope.reports.figures.sublayers import draw_sublayers

    found = keys(members)
    there = {metric for metric, _ in found}
    yield "curves", partial(draw_curves, members, found)
    for metric in (m.name for m in METRICS.values() if m.needs == "pairs"):
        if metric in there and any(member.run.has_states for member in members):
            yield metric, partial(draw_pairs, members, metric)
    if any(member.boxes for member in members):
        yield "cosine_to_last", partial(draw_boxes, members)
    if members[0].alone and members[0].run.sublayers:
        yield "sublayers", partial(draw_sublayers, members[0])
    if "saturated" in there:
        yield "saturation", partial(draw_saturation, members)


def _of_scores(runs: list[Run], evaluation: Evaluation) -> Iterator[tuple[str, Drawer]]:
    """Yield the figures of scores, and of how the runs' metrics go with them."""
    from layerscope.reports.correlations import pairings
    from layerscope.reports.figures.scores import draw_averages, draw_correlations, draw_tasks

    entries = scored(evaluation)
    if any(entry.average for entry in entries):
        yield "scores", partial(draw_averages, entries)
    yield "scores_by_task", partial(draw_tasks, entries)
    if paired := pairings(runs, evaluation, entries):
        yield "correlations", partial(draw_correlations, paired, [entry.name for entry in entries])


def _of_documents(documents: Sequence[Document], prefix: str) -> Iterator[tuple[str, Drawer]]:
    """Yield the charts of documents, those of one title in one figure, a panel for each document."""
    from layerscope.reports.figures.charts import draw_charts

    charts = [(chart, " on ".join(d.title)) for d in documents for chart in d.parts if isinstance(chart, Chart)]
    for title in dict.fromkeys(chart.title for chart, _ in charts):
        own = [(chart, name) for chart, name in charts if chart.title == title]
        slug = re.sub(r"[^a-z]+", "_", title.lower())
        yield f"{prefix}_{slug}", partial(draw_charts, [chart for chart, _ in own], [name for _, name in own])


def _of_comparisons(comparisons: Sequence[Comparison]) -> Iterator[tuple[str, Drawer]]:
    """Yield the figures of comparisons: a panel for each pair, a line for each pair, and maps of each series."""
    from layerscope.reports.figures.comparison import draw_checkpoints, draw_differences, draw_rectangles

    for metric in dict.fromkeys(name for comparison in comparisons for name in comparison.similarities):
        yield f"compared_{metric}", partial(draw_rectangles, comparisons, metric)
    if any((comparison.frame["kind"] == "difference").any() for comparison in comparisons):
        yield "differences", partial(draw_differences, comparisons)
    series = [comparison for comparison in comparisons if comparison.series]
    for number, comparison in enumerate(series):
        yield f"checkpoints{f'-{number + 1}' if len(series) > 1 else ''}", partial(draw_checkpoints, comparison)


def _single(members: list[Member]) -> Iterator[tuple[str, Drawer]]:
    """Yield a figure for each metric, and for each variant of it where there are several."""
    from layerscope.reports.figures.lines import draw_curves

    found = keys(members)
    for key in found:
        yield _file_name(key, found), partial(draw_curves, members, [key])


def _file_name(key: Key, among: list[Key]) -> str:
    metric, variant = key
    several = sum(other == metric for other, _ in among) > 1
    name = f"curve-{metric}-{variant}" if several and variant else f"curve-{metric}"
    return re.sub(r"[^\w=.+-]+", "-", name)

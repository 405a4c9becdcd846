"""The figures of runs over each other, and of scores on tasks, ready for a paper: PNG and PDF, in one style."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from layerscope.comparison.comparison import Comparison
from layerscope.core.errors import LayerscopeError
from layerscope.early_exit.exit_report import ExitReport
from layerscope.runs.names import run_names
from layerscope.runs.run import Run
from layerscope.scores.evaluation import Evaluation
from layerscope.scores.scored import scored

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
        from layerscope.show.figures import draw as documents, style
    except ImportError:
        raise LayerscopeError('figures need matplotlib: pip install "layerscope[figures]"') from None
    given = [runs] if isinstance(runs, Run) else list(runs)
    called = run_names(given) if names is None else list(names)
    if len(called) != len(given):
        raise LayerscopeError(f"{len(given)} runs have {len(called)} names: give as many names as runs")
    shown = [(name, run.document()) for name, run in zip(called, given, strict=True)]
    shown += [(" on ".join(report.document().title), report.document()) for report in exits]
    drawers: list[tuple[str, Drawer]] = []
    if evaluation is not None:
        drawers += _of_scores(given, evaluation)
    if comparisons:
        drawers += _of_comparisons(comparisons)
    if not drawers and not any(documents.figures(shown)):
        held = f"run {str(given[0].path)!r} holds" if len(given) == 1 else "these runs hold"
        raise LayerscopeError(f"{held} no metric by layer: there is nothing to draw")
    written = documents.draw(shown, folder)
    with style.styled():
        for name, drawer in drawers:
            written += style.save(drawer(style.TEXT_WIDTH), Path(folder), name)
            written += style.save(drawer(style.COLUMN_WIDTH), Path(folder), f"{name}-column")
    return written


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

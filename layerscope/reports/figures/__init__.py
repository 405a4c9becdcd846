"""The figures of runs over each other, and of scores on tasks, ready for a paper: PNG and PDF, in one style."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from layerscope.comparison.comparison import Comparison
from layerscope.core.errors import LayerscopeError
from layerscope.early_exit.exit_report import ExitReport
from layerscope.runs.details import run_names
from layerscope.runs.run import Run
from layerscope.scores.evaluation import Evaluation
from layerscope.show.document import Document


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
    given = [runs] if isinstance(runs, Run) else list(runs)
    called = run_names(given) if names is None else list(names)
    if len(called) != len(given):
        raise LayerscopeError(f"{len(given)} runs have {len(called)} names: give as many names as runs")
    shown = [(name, run.document()) for name, run in zip(called, given, strict=True)]
    shown += [(" on ".join(report.document().title), report.document()) for report in exits]
    kept = [*([] if evaluation is None else [evaluation.document(runs=given)]), *(c.document() for c in comparisons)]
    if not (given or kept or exits):
        raise LayerscopeError("no result is named: there is nothing to draw")
    return draw_documents(kept, folder, shown)


def draw_documents(
    given: Sequence[Document], folder: str | Path, named: Sequence[tuple[str, Document]] = ()
) -> list[Path]:
    """Draw the figures of documents, and of some with names, into a folder and return the paths of the files."""
    try:
        from layerscope.show.figures.draw import draw as drawn, figures
    except ImportError:
        raise LayerscopeError('figures need matplotlib: pip install "layerscope[figures]"') from None
    members = [member for document in given for member in document.members or (document,)]
    shown = [*named, *((" on ".join(member.title), member) for member in members)]
    if not any(figures(shown)):
        held = "this result holds" if len(shown) == 1 else "these results hold"
        raise LayerscopeError(f"{held} no metric by layer: there is nothing to draw")
    return drawn(shown, folder)

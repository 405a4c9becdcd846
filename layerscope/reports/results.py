"""Results of any kind, opened from their folders and put on one page."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import layerscope
from layerscope.comparison.matching import OPTIONS
from layerscope.core import LayerscopeError, existing
from layerscope.core.hub import page_folder
from layerscope.runs.details import run_names
from layerscope.runs.run import Run
from layerscope.scores.evaluation import Evaluation
from layerscope.scores.opening import merged, open_run_or_scores
from layerscope.show import Shown, write_page
from layerscope.show.page.content import Named
from layerscope.show.plain import plain

DATA = {"fingerprint": "their data", "samples": "the number of samples"}
"""Facts of the data that move a metric without the model."""
KINDS = {
    "comparison.json": "comparison",
    "exits.json": "exit_report",
    "drafts.json": "draft_report",
    "generation.json": "generation",
    "lens.json": "reading",
    "selection.json": "selection",
    "removal.json": "removal",
    "shrunk.json": "shrunk",
}
"""The file that marks the folder of a result; `layerscope.open_KIND` opens it."""


def write_report(shown: Any, out: str | Path | None) -> Path:
    """Do what `report` is asked for."""
    runs, scores, others = opened(shown)
    folders = [run.path for run in runs]
    folders += [getattr(entry, "folder", None) or Path() for entry in others]
    if out is None:
        folder = Path()
        if len(folders) == 1 and not scores:
            folder = page_folder(folders[0])
        out = folder / "report.html"
    return write_page(out, lambda: _rendered(runs, scores, others))


def _rendered(
    runs: list[Run], evaluations: list[Evaluation], others: list[Shown]
) -> str:
    from layerscope.show import render

    named = [Named(entry.document()) for entry in (*others, *evaluations)]
    title = ""
    notes = []
    percent = None
    if len(runs) == 1:
        named.append(Named(runs[0].document()))
        title = " on ".join(map(plain, named[-1].document.title))
    elif runs:
        title = f"{len(runs)} runs compared"
        notes = unlike(runs)
        for run, name in zip(runs, run_names(runs), strict=True):
            named.append(Named(run.document(), name))
    if runs and all(run.steps for run in runs):
        # trainings of several depths are rivals at the same cost: there a layer is a layer
        percent = False
    return render(named, title, notes, percent=percent)


def unlike(runs: Sequence[Run]) -> list[str]:
    """Return one sentence on what keeps the values of runs from being compared, nothing where nothing does."""
    facts = [(title, "data", name) for name, title in DATA.items()]
    facts += [(f"`{name}`", "options", name) for name in ("pooling", *OPTIONS)]
    titles = [
        title
        for title, group, name in facts
        if len({repr(run.info[group].get(name) or None) for run in runs}) > 1
    ]
    if not titles:
        return []
    return [
        f"These runs differ in {', '.join(titles)}: compare their shapes, not one value with another."
    ]


def opened(shown: Any) -> tuple[list[Run], list[Evaluation], list[Shown]]:
    """Return results, or those that paths hold: the runs, all evaluations as one, and the others."""
    if isinstance(shown, (Shown, str, Path)):
        shown = [shown]
    runs: list[Run] = []
    scores = []
    others = []
    for entry in shown:
        result = _opened(entry)
        if isinstance(result, Evaluation):
            scores.append(result)
        elif not isinstance(result, Run):
            others.append(result)
        elif result.path.resolve() in [run.path.resolve() for run in runs]:
            raise LayerscopeError(
                f"run {str(result.path)!r} is given twice: name each run once"
            )
        else:
            runs.append(result)
    if scores:
        scores = [merged(scores)]
    if not (runs or scores or others):
        raise LayerscopeError(
            "no result is named: give the folder of one, or of several"
        )
    return runs, scores, [entry.beside(others) for entry in others]


def _opened(entry: Any) -> Shown:
    """Return a result, or the one that lies at a path."""
    if isinstance(entry, Shown):
        return entry
    path = existing(entry, "result")
    for manifest, kind in KINDS.items():
        if (path / manifest).is_file():
            result: Shown = getattr(layerscope, f"open_{kind}")(path)
            return result
    return open_run_or_scores(path)

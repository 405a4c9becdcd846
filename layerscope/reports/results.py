"""Results of any kind, opened from their folders and put on one page."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from layerscope.comparison import comparison
from layerscope.comparison.matching import OPTIONS
from layerscope.core.errors import LayerscopeError
from layerscope.core.files import existing
from layerscope.core.hub import page_folder
from layerscope.early_exit import exit_report
from layerscope.generation import draft_report, generation
from layerscope.logit_lens import reading
from layerscope.runs.details import run_names
from layerscope.runs.run import Run
from layerscope.scores.evaluation import Evaluation
from layerscope.scores.opening import merged, open_run_or_scores
from layerscope.selection import removal, selection
from layerscope.show.notebook import Shown
from layerscope.show.page.content import Named
from layerscope.show.plain import plain
from layerscope.show.written import write_page
from layerscope.shrinking import shrunk

DECISIVE = {
    ("data", "fingerprint"): "their data",
    ("data", "samples"): "the number of samples",
    ("options", "pooling"): "pooling",
    **{("options", name): title for name, title in OPTIONS.items()},
}
"""Facts that move a metric without the model."""
KEPT = (
    (comparison.STORE, comparison.open_comparison),
    (exit_report.STORE, exit_report.open_exit_report),
    (draft_report.STORE, draft_report.open_draft_report),
    (generation.STORE, generation.open_generation),
    (reading.STORE, reading.open_reading),
    (selection.STORE, selection.open_selection),
    (removal.STORE, removal.open_removal),
    (shrunk.STORE, shrunk.open_shrunk),
)


def write_report(shown: Any, out: str | Path | None) -> Path:
    """Do what `report` is asked for."""
    runs, scores, others = opened(shown)
    folders = [
        *(run.path for run in runs),
        *(getattr(entry, "folder", None) or Path() for entry in others),
    ]
    is_single = len(folders) == 1 and not scores
    default_folder = page_folder(folders[0]) if is_single else Path()
    page = default_folder / "report.html" if out is None else out
    return write_page(page, lambda: _rendered(runs, scores, others))


def _rendered(
    runs: list[Run], evaluations: list[Evaluation], others: list[Shown]
) -> str:
    from layerscope.show.page.page import render

    documents = [entry.document() for entry in (*others, *evaluations)]
    named = [Named(document) for document in documents]
    names = run_names(runs) if len(runs) > 1 else [""] * len(runs)
    named += [
        Named(run.document(), name) for run, name in zip(runs, names, strict=True)
    ]
    title = ""
    if runs:
        of_one = " on ".join(map(plain, named[-1].document.title))
        title = f"{len(runs)} runs compared" if len(runs) > 1 else of_one
    # trainings of several depths are rivals at the same cost: there a layer is a layer
    percent = False if runs and all(run.steps for run in runs) else None
    return render(named, title, list(filter(None, [unlike(runs)])), percent=percent)


def unlike(runs: Sequence[Run]) -> str:
    """Return one sentence on what keeps the values of runs from being compared, empty where nothing does."""
    titles = []
    for (group, name), title in DECISIVE.items():
        if len({repr(run.info[group].get(name) or None) for run in runs}) > 1:
            titles.append(title)
    if not titles:
        return ""
    differing = " and ".join(filter(None, [", ".join(titles[:-1]), titles[-1]]))
    return f"These runs differ in {differing}: compare their shapes, not one value with another."


def opened(shown: Any) -> tuple[list[Run], list[Evaluation], list[Shown]]:
    """Return results, or those that paths hold: the runs, all evaluations as one, and the others."""
    entries = [shown] if isinstance(shown, (Shown, str, Path)) else list(shown)
    if not entries:
        raise LayerscopeError(
            "no result is named: give the folder of one, or of several"
        )
    results = [
        entry if isinstance(entry, Shown) else _opened(entry) for entry in entries
    ]
    runs = [result for result in results if isinstance(result, Run)]
    paths = [run.path.resolve() for run in runs]
    for run, path in zip(runs, paths, strict=True):
        if paths.count(path) > 1:
            raise LayerscopeError(
                f"run {str(run.path)!r} is given twice: name each run once"
            )
    scores = [result for result in results if isinstance(result, Evaluation)]
    others = [result for result in results if not isinstance(result, (Run, Evaluation))]
    return runs, [merged(scores)] if scores else [], others


def _opened(name: str | Path) -> Shown:
    path = existing(name, "result")
    for store, open_kept in KEPT:
        if store.is_in(path):
            return open_kept(path)
    return open_run_or_scores(path)

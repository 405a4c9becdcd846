from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from layerscope.comparison.comparison import STORE as COMPARISONS, Comparison, open_comparison
from layerscope.comparison.matching import OPTIONS
from layerscope.core.errors import LayerscopeError
from layerscope.early_exit.exit_report import STORE as EXITS, ExitReport, open_exit_report
from layerscope.runs.details import run_names
from layerscope.runs.folder import RunFolder
from layerscope.runs.run import Run, open_run
from layerscope.scores.evaluation import Evaluation
from layerscope.scores.opening import holds_scores, merged, open_evaluation
from layerscope.scores.pairing import averages, is_of
from layerscope.scores.scored import scored
from layerscope.show.document import Document, overlaid
from layerscope.show.page.content import Named
from layerscope.show.plain import plain
from layerscope.show.written import write_page

DEFAULT = "report.html"
DECISIVE = {
    ("data", "fingerprint"): "their data",
    ("data", "samples"): "the number of samples",
    ("options", "pooling"): "pooling",
    **{("options", name): title for name, title in OPTIONS.items()},
}
"""Facts that move a metric without the model."""

Given = Run | Evaluation | ExitReport | Comparison | str | Path


def write_report(shown: Given | Sequence[Given], out: str | Path | None) -> Path:
    """Do what `report` is asked for."""
    runs, evaluation, exits, compared = opened(shown)
    kept: list[ExitReport | Comparison] = [*exits, *compared]
    folders = [*(run.path for run in runs), *(entry.folder or Path() for entry in kept)]
    own = folders[0] if len(folders) == 1 and evaluation is None else Path()
    target = own / DEFAULT if out is None else Path(out)
    return write_page(target, lambda: _rendered(runs, evaluation, exits, compared))


def _rendered(
    runs: list[Run], evaluation: Evaluation | None, exits: list[ExitReport], compared: list[Comparison]
) -> str:
    from layerscope.show.page.page import render

    given = [Named(entry.document()) for entry in (*compared, *exits)]
    title, notes, over = "", [unlike(runs)] if unlike(runs) else [], {}
    if evaluation is not None:
        scores = evaluation.document(runs=runs)
        looks = [Named(member, look=look) for member, look in _looks(scores, evaluation, runs)]
        given += looks if runs else [Named(scores)]
        title, over = " on ".join(map(plain, scores.title)), averages(evaluation, runs)
        notes += scores.warnings if runs and scores.members else ()
    names = run_names(runs)
    for number, (run, name) in enumerate(zip(runs, names, strict=True)):
        document = run.document()
        document = overlaid(document, over[number]) if number in over else document
        given.append(Named(document, name if len(runs) > 1 else "", number if evaluation else None))
    if runs:
        title = f"{len(runs)} runs compared" if len(runs) > 1 else _title(runs[0])
    # trainings of several depths are rivals at the same cost: there a layer is a layer
    percent = False if runs and all(run.steps for run in runs) else None
    return render(given, title, notes, percent=percent)


def unlike(runs: Sequence[Run]) -> str:
    """Return one sentence on what keeps the values of runs from being compared, empty where nothing does."""
    known = [{(group, name): run.info[group].get(name) or None for group, name in DECISIVE} for run in runs]
    names = [title for key, title in DECISIVE.items() if len({repr(facts[key]) for facts in known}) > 1]
    if not names:
        return ""
    listed = f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else names[0]
    return f"These runs differ in {listed}: compare their shapes, not one value with another."


def _title(run: Run) -> str:
    return f"{plain(str(run.info['model']['name']))} on {plain(str(run.info['data']['name']))}"


def _looks(scores: Document, evaluation: Evaluation, runs: Sequence[Run]) -> Iterator[tuple[Document, int | None]]:
    """Yield each series of scores, in the colour of a run of its model where there is one."""
    taken: set[int] = set()
    for document, entry in zip(scores.members or (scores,), scored(evaluation), strict=True):
        same = (i for i, run in enumerate(runs) if i not in taken and is_of(run, entry))
        look = next(same, None)
        taken |= set() if look is None else {look}
        yield document, look


def opened(
    shown: Given | Sequence[Given],
) -> tuple[list[Run], Evaluation | None, list[ExitReport], list[Comparison]]:
    """Return the runs, all evaluations as one, the reports of exits and the comparisons, of such things or paths."""
    given = [shown] if isinstance(shown, (Run, Evaluation, ExitReport, Comparison, str, Path)) else list(shown)
    if not given:
        raise LayerscopeError("no run is named: give the folder of one, or of several")
    runs: dict[Path, Run] = {}
    evaluations = []
    exits: list[ExitReport] = []
    compared: list[Comparison] = []
    for entry in given:
        if isinstance(entry, Comparison) or (isinstance(entry, (str, Path)) and COMPARISONS.is_in(Path(entry))):
            compared.append(entry if isinstance(entry, Comparison) else open_comparison(entry))
            continue
        if isinstance(entry, ExitReport) or (isinstance(entry, (str, Path)) and EXITS.is_in(Path(entry))):
            exits.append(entry if isinstance(entry, ExitReport) else open_exit_report(entry))
            continue
        if isinstance(entry, Evaluation) or (isinstance(entry, (str, Path)) and _is_evaluation(Path(entry))):
            evaluations.append(entry if isinstance(entry, Evaluation) else open_evaluation(entry))
            continue
        run = entry if isinstance(entry, Run) else _run(entry)
        folder = run.path.resolve()
        if folder in runs:
            raise LayerscopeError(f"run {str(run.path)!r} is given twice: name each run once")
        runs[folder] = run
    return list(runs.values()), merged(evaluations) if evaluations else None, exits, compared


def _is_evaluation(path: Path) -> bool:
    return not RunFolder.exists(path) and holds_scores(path)


def _run(path: str | Path) -> Run:
    """Open a run; a file or folder that is none, and holds none, is told that an evaluation would do as well."""
    folder = Path(path)
    if folder.is_file() or (folder.is_dir() and not RunFolder.exists(folder) and not any(folder.glob("*/run.json"))):
        raise LayerscopeError(
            f"{str(path)!r} is neither a run nor an evaluation: give the folder of a run, or of mteb results, a CSV of "
            "scores, or what Evaluation.save wrote; or the folder that exits or compare wrote"
        )
    return open_run(path)

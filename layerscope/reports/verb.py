from pathlib import Path
from typing import Annotated, Any

from layerscope.core import OUTPUT, Repeated, checked
from layerscope.reports.options import ReportOptions


def report(
    shown: Annotated[Any, Repeated()], out: Annotated[str | Path | None, OUTPUT] = None
) -> Path:
    """Write one HTML page about results of any kind; it opens offline.

    The page fetches nothing; text from models and data is shown as it is and never run. Several
    runs are overlaid, by percent of depth where their models differ in it. Evaluations add scores
    by layer and task. Reports of exits add accuracy against speed; comparisons, layers of one run
    by layers of another and differences by depth; selections, the chosen layer and its
    alternatives; readings of the lens, what every layer predicts; generated texts, what every depth
    writes. Returns the path of the page.

    Args:
        shown: folders of runs, evaluations, exits, comparisons, selections, readings of the lens
            and generated texts, folders of mteb results, CSV files of scores, or hf://user/name of
            a result on the hub; in Python also such results themselves.
        out: file of the page; by default report.html, in the folder of a single result other than
            scores, and else in the current folder. An existing file is replaced.

    Raises:
        LayerscopeError: for no result, one given twice, a path that holds none, a run that has no
            table yet, a file that cannot be written, and where vl-convert is not installed.

    Example:
        >>> layerscope.report("runs/minilm").as_posix()
        'runs/minilm/report.html'

    """
    options = checked(report, locals(), ReportOptions)
    from layerscope.reports.results import write_report

    return write_report(options.shown, options.out)

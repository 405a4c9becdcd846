from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from layerscope.core.option_kinds import Repeated
from layerscope.core.options import checked
from layerscope.core.shared_options import OUTPUT


def report(shown: Annotated[Any, Repeated()], out: Annotated[str | Path | None, OUTPUT] = None) -> Path:
    """Write one HTML page about results of any kind; it opens offline.

    It asks for nothing outside itself; every text that came from a model or data is shown as it is and never run.
    Several runs are overlaid by percent of depth. Evaluations add scores by layer and task, beside a run of the same
    model also how its metrics go with them; reports of exits accuracy against speed, comparisons layers by layers of
    other runs and differences by depth, selections the layer chosen and its rivals, readings of the lens what every
    layer predicts. Returns the path of the page.

    Args:
        shown: folders of runs, evaluations, exits, comparisons, selections and readings of the lens, folders of mteb
            results, or CSV files of scores; in Python also such results themselves.
        out: file of the page; by default report.html in the folder of a single result, and else in the current folder.
            A file that is there is replaced.

    Raises:
        LayerscopeError: for nothing, a thing given twice, a path that holds no result, a run that has no table yet, a
            file that cannot be written, and where plotly is not installed.

    Example:
        >>> layerscope.report("runs/minilm").as_posix()
        'runs/minilm/report.html'

    """
    asked = checked(report, locals())
    from layerscope.reports.results import write_report

    return write_report(asked.shown, asked.out)

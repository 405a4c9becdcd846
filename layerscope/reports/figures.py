"""The figures of results, ready for a paper: PNG, PDF and SVG, in one style."""

from pathlib import Path
from typing import Any

from layerscope.core import LayerscopeError, require
from layerscope.reports.results import opened
from layerscope.runs.details import run_names
from layerscope.show.drawing import draw as drawn, figures


def draw(shown: Any, folder: str | Path) -> list[Path]:
    """Draw the figures of what `report` takes into a folder and return the paths of the files.

    Every figure is there as PNG, PDF and SVG: `NAME`, 5.5 inches wide as the text of ICLR's style,
    and laid out anew as `NAME-column` for the 3.25 inches of a column of ICML's: `curves`; where
    pairs of layers were compared, a map for each similarity by its name, as `cka`; `sublayers` of
    one run that has them.

    Several runs lie over each other, models of several depths by depth in percent, each in its own
    colour, dash and marker; they are called what they differ by; maps have a panel for each run. An
    evaluation adds `scores` (the average by depth) and `scores_by_task`; exits add
    `exits_accuracy_against_speed` (truncated models beside it); comparisons add `compared_METRIC`
    for each similarity of layers across runs, `differences`, and for a series of checkpoints
    `checkpoints`; a reading of the lens a grid for each sample; generated texts that were measured,
    `generated`.

    Raises `LayerscopeError` where vl-convert is missing, the folder cannot be written, or there is
    nothing to draw.
    """
    require("charts", "figures")
    runs, evaluations, others = opened(shown)
    pairs = zip(run_names(runs), runs, strict=True)
    named = [(name, run.document()) for name, run in pairs]
    for entry in (*others, *evaluations):
        document = entry.document()
        members = document.members or (document,)
        named += [(" on ".join(member.title), member) for member in members]
    if len(named) == 1 and not runs:
        named = [("", named[0][1])]
    if not any(figures(named)):
        kinds = " and ".join(dict.fromkeys(document.kind for _, document in named))
        raise LayerscopeError(
            f"the given {kinds} have no plot, so there is nothing to draw: `report` shows them"
        )
    return drawn(named, folder)

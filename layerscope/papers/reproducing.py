from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from layerscope.core import workers
from layerscope.core.errors import LayerscopeError
from layerscope.core.option_kinds import IN_CODE, Folder, OneOf, Repeated, Whole
from layerscope.core.options import DATA, OUTPUT, checked
from layerscope.core.progress import reporting
from layerscope.papers.recipe import SCALES

if TYPE_CHECKING:
    from layerscope.papers.board import Board

ROOM_MB = 200.0
"""Disk that an asset takes at most at the small scale."""


def reproduce(
    names: Annotated[str | Sequence[str] | None, Repeated()] = None,
    *,
    scale: Annotated[str, OneOf(SCALES)] = "small",
    out: Annotated[str | Path, Folder(), OUTPUT] = "papers",
    data_dir: Annotated[str | Path | None, Folder(), DATA] = None,
    jobs: Annotated[int | str, Whole(1, words=("auto",))] = "auto",
    progress: Annotated[bool, IN_CODE] = True,
) -> Board:
    """Run the claims of the two papers, and say which held: figures, tables and theorems by name.

    Numbers stand beside the printed ones, and each verdict beside its statistic, interval and threshold. Trained models
    and runs are kept in the folder, shared by recipes and made once; the same call resumes.

    Args:
        names: names of recipes, such as T-fig5 or L-fig1; by default all that run at the scale.
        scale: small (two cores, no download), published (from the values the authors released), or paper (the
            published setting, with models and data from the hub).
        out: folder for results, pictures, the page of all verdicts, and what they were made from.
        data_dir: folder of local data sets, by their names on the hub; by default the hub is asked.
        jobs: processes that train and measure at the same time; auto is one for each core, and one on a GPU.
        progress: show progress on standard error.

    Raises:
        LayerscopeError: for an unknown recipe, a scale it has not, and what that scale lacks here.

    Example:
        >>> board = layerscope.reproduce("T-tab1", out="papers", progress=False)
        >>> [(verdict.claim.name, verdict.word) for verdict in board["T-tab1"].verdicts]
        [('totals', 'held'), ('savings', 'held'), ('columns', 'did not hold')]

    """
    asked = checked(reproduce, locals())

    from layerscope.papers.assets import Assets, apart, check_disk
    from layerscope.papers.board import Board, judged
    from layerscope.papers.catalogue import chosen, lacking

    named = (asked.names,) if isinstance(asked.names, str) else tuple(asked.names or ())
    found = chosen(named, asked.scale)
    folder = Path(asked.out).expanduser()
    data = Path(asked.data_dir).expanduser() if asked.data_dir else None
    if data is not None and not data.is_dir():
        raise LayerscopeError(f"`data_dir` {str(data)!r} is not a folder: name the one that holds the data sets")
    reporter = reporting(asked.progress)
    plans = [(recipe, Assets(folder / "assets", recipe.scales[asked.scale], data)) for recipe in found]
    missing = {a.path(need) for recipe, a in plans for need in a.missing(recipe.needs(a.settings))}
    check_disk(folder, ROOM_MB * len(missing))
    minutes = sum(recipe.minutes for recipe, a in plans if any(not a.has(n) for n in recipe.needs(a.settings)))
    if missing:
        reporter.say(f"{len(missing)} models and runs to make, about {minutes:.0f} minutes on two cores")
    results = []
    for recipe, assets in plans:
        jobs = workers.wanted(asked.jobs, len(missing)) if apart() else 1
        assets.make(recipe.needs(assets.settings), reporter, recipe.name, jobs)
        results.append(judged(recipe, assets, asked.scale))
        results[-1].save(folder / f"{recipe.name}-{asked.scale}")
        reporter.say(f"{recipe.name}: {results[-1].summary}")
    board = Board(asked.scale, tuple(results), () if named else lacking(asked.scale), folder)
    board.report(folder / f"{asked.scale}.html")
    return board

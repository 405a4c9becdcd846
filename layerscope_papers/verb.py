from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from layerscope.core import (
    DATA,
    IN_CODE,
    MODEL,
    OUTPUT,
    Folder,
    LayerscopeError,
    OneOf,
    Repeated,
    Whole,
    checked,
    count,
    reporting,
    require,
)
from layerscope_papers import workers
from layerscope_papers.options import SCALES, YOURS, ReproduceOptions

if TYPE_CHECKING:
    from layerscope_papers.assets import Cost
    from layerscope_papers.board import Board

ROOM_MB = 20.0
"""Disk space of an asset at the small scale: most take 2, and a text classifier 90."""


def reproduce(
    names: Annotated[str | Sequence[str] | None, Repeated()] = None,
    *,
    scale: Annotated[str, OneOf(SCALES)] = "small",
    model: Annotated[str | None, MODEL] = None,
    data: Annotated[str | None, DATA] = None,
    out: Annotated[str | Path, Folder(), OUTPUT] = "papers",
    data_dir: Annotated[str | Path | None, Folder(), DATA] = None,
    jobs: Annotated[int | str, Whole(1, words=("auto",))] = "auto",
    progress: Annotated[bool, IN_CODE] = True,
) -> "Board":
    """Test the claims of the two papers, figure by figure, and report which held.

    Each recipe tests a figure, table or theorem: its numbers stand beside the printed ones, and
    each verdict beside its statistic, interval and threshold. Trained models and runs are kept in
    the folder and shared by recipes; the same call resumes.

    Args:
        names: recipes to run, such as T-fig5 or L-fig1; in Python None runs every recipe of the
            scale.
        scale: scale to run at: small (two cores, no download), published (from the values the
            authors released), or paper (the published settings, with models and data from the hub).
        model: language model of yours, a folder or a name on the hub, on which claims about one
            model are judged instead; with `data`, and without `names` all such claims. Some claims
            train copies of it further, on a part of the texts.
        data: texts that it reads, as `profile` takes them.
        out: folder for results, figures, the page of verdicts, and the models and runs they rest
            on.
        data_dir: folder of local data sets: cifar10/ and imagenet/ with images, in folders train and
            test or a tar archive of these, for the scale paper by default from the hub; sst2/ and
            other tasks of GLUE, each with train.csv and dev.csv.
        jobs: processes that train and measure at once; auto is one per core. On a GPU there is
            always one.
        progress: show progress on standard error.

    Raises:
        LayerscopeError: for an unknown recipe, a scale it does not run at, a recipe that takes no
            model, a missing folder, and a full disk.

    Example:
        >>> from layerscope_papers import reproduce
        >>> board = reproduce("T-tab1", out="papers", progress=False)
        >>> [(verdict.claim.name, verdict.word) for verdict in board["T-tab1"].verdicts]
        [('totals', 'held'), ('savings', 'held'), ('columns', 'did not hold')]

    """
    options = checked(reproduce, locals(), ReproduceOptions)
    require("charts", "reproduce")

    from layerscope_papers.assets import Assets, apart, check_disk
    from layerscope_papers.board import Board, judged, judged_by
    from layerscope_papers.catalogue import chosen, lacking, on_yours

    folder = options.out
    images = options.data_dir
    if images is not None and not images.is_dir():
        raise LayerscopeError(
            f"`data_dir` {str(images)!r} is not a folder: name the one that holds the data sets"
        )
    named = (
        (options.names,)
        if isinstance(options.names, str)
        else tuple(options.names or ())
    )
    where: str = options.scale
    if (options.model is None) != (options.data is None):
        raise LayerscopeError("`model` and `data` go together: give both, or neither")
    if options.model and options.data:
        options.refuse(
            ["scale", "data_dir"], "is that of the paper's models, and `model` is given"
        )
        where = YOURS
        recipes = on_yours(named, options.model, options.data)
    else:
        recipes = chosen(named, options.scale, options.data_dir)
    reporter = reporting(options.progress)
    plans = [
        (recipe, Assets(folder / "assets", recipe.scales[where], images))
        for recipe in recipes
    ]
    missing = {
        a.path(need): need
        for recipe, a in plans
        for need in a.missing(recipe.needs(a.settings))
    }
    check_disk(folder, ROOM_MB * len(missing))
    jobs = workers.wanted(options.jobs, len(missing)) if apart() else 1
    if missing:
        reporter.say(_estimate([asset.cost for asset in missing.values()], jobs))
    results = []
    with reporter.bar("recipes", len(plans), "recipes") as advance:
        for recipe, assets in plans:
            assets.make(recipe.needs(assets.settings), reporter, recipe.name, jobs)
            place = folder / f"{recipe.name}-{where}"
            if judged_by(place) not in (None, recipe.digest):
                reporter.say(
                    f"{recipe.name}: its claims or settings have changed since the result in {place}, which is "
                    "replaced; models are kept"
                )
            results.append(judged(recipe, assets, where))
            results[-1].save(place)
            advance(1, f"{recipe.name}: {results[-1].summary}")
    is_whole = not named and where != YOURS
    missing_recipes = lacking(options.scale, images) if is_whole else ()
    board = Board(where, tuple(results), missing_recipes, folder)
    board.report(folder / f"{where}.html")
    return board


def _estimate(costs: "Sequence[Cost]", jobs: int) -> str:
    """Return in words how long so many models and runs take, several at once, and how much memory."""
    minutes = round(sum(cost.minutes for cost in costs) / jobs)
    hours = round(minutes / 60)
    long = count(hours, "hour") if hours > 2 else count(max(minutes, 1), "minute")
    memory = jobs * max(cost.gigabytes for cost in costs)
    return f"models and runs to make: {len(costs)}, about {long} and {memory:.0f} GB of memory"

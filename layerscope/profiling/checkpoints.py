from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from layerscope.core.errors import LayerscopeError, choices, folder_name
from layerscope.core.option_kinds import Folder, Names
from layerscope.profiling.verb import profile

if TYPE_CHECKING:
    from layerscope.runs import Run


def profile_checkpoints(
    model: str | Path | None,
    revisions: str | Iterable[str],
    *,
    out: str | Path | None = None,
    **options: Any,
) -> "list[Run]":
    """Profile checkpoints of one model over the same data, and return a run for each, ready for `compare`.

    `revisions` are branches, tags or commits of a hub model, or folders in a local `model`, as a
    training saves them ("checkpoint-500"); in one string they are separated by commas. Each run is
    a folder named after its checkpoint in `out`, by default runs/MODEL-checkpoints; the same call
    resumes. `options` are those of `profile`, including `data`.

    Raises `LayerscopeError` for fewer than two checkpoints, a repeated one, and one that does not
    exist.

    Source: Layer by Layer, figures 4 and 11.

    >>> from layerscope.profiling import profile_checkpoints
    >>> how = {"data": "reviews.csv", "views": 0, "progress": False}
    >>> runs = profile_checkpoints("saved-steps", ["step1", "step20", "step300"], out="runs/steps", **how)
    >>> layerscope.compare(runs, progress=False).series
    True
    """
    if model is None or options.get("states") is not None:
        raise LayerscopeError("`revisions` are checkpoints of a model: name it")
    names = Names().take("revisions", revisions)
    folder = Path(model).expanduser()
    if len(names) < 2 or len(set(names)) < len(names):
        raise LayerscopeError(
            f"revisions is {','.join(names)!r}: name two checkpoints or more, each once"
        )
    if options.get("revision") is not None:
        raise LayerscopeError(
            "`revision` names one checkpoint and `revisions` several: give one of the two"
        )
    checkpoints = (
        [path.name for path in sorted(folder.iterdir()) if path.is_dir()]
        if folder.is_dir()
        else names
    )
    for name in names:
        if name not in checkpoints:
            raise LayerscopeError(
                f"checkpoint {name!r} is not in {str(folder)!r}{choices(name, checkpoints, 'it has')}"
            )
    target = Folder().take("out", out or Path("runs") / folder_name(f"{folder.name}-checkpoints"))
    runs = []
    for name in names:
        checkpoint = (
            {"model": str(folder / name)}
            if folder.is_dir()
            else {"model": str(model), "revision": name}
        )
        runs.append(profile(**checkpoint, **options, out=target / folder_name(name)))
    return runs

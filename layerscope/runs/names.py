"""What runs that are shown together are called."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from layerscope.runs.run import Run


def run_names(runs: Sequence[Run]) -> list[str]:
    """Return the shortest names that tell runs apart, in their order: what came from a model or data, as it is there.

    The model's name; `model on data` where the data differ; what it was trained for, where that differs; for runs that
    still share a name the run folder's name in parentheses, else its path. Only one run given twice has one name twice.
    """
    models = [str(run.info["model"]["name"]) for run in runs]
    data = [str(run.info["data"]["name"]) for run in runs]
    short = models if len(set(data)) <= 1 else [f"{model} on {on}" for model, on in zip(models, data, strict=True)]
    ways = [run.info["options"].get("objective") for run in runs]
    if len(set(ways)) > 1:
        short = [f"{name}, {way}" if way else name for name, way in zip(short, ways, strict=True)]
    paths = [run.path.resolve() for run in runs]
    with_folder = _marked(short, short, _folders(paths))
    return _marked(with_folder, short, [str(path) for path in paths])


def _folders(paths: Sequence[Path]) -> list[str]:
    """Return the last folder by which paths differ: of `a/history` and `b/history`, `a` and `b`."""
    while len({path.name for path in paths}) == 1 and all(path.name for path in paths) and len(paths) > 1:
        paths = [path.parent for path in paths]
    return [path.name for path in paths]


def _marked(names: list[str], short: list[str], places: list[str]) -> list[str]:
    """Return the names, a short one with its place in parentheses where several runs have one name."""
    count = Counter(names)
    rows = zip(names, short, places, strict=True)
    return [f"{base} ({place})" if count[name] > 1 else name for name, base, place in rows]

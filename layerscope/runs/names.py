"""What runs that are shown together are called."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from layerscope.runs.run import Run


def run_names(runs: Sequence[Run]) -> list[str]:
    """Return the shortest names by which runs differ, in their order: what came from a model or data, as it is there.

    The model's name; `model on data` where the data differ; what it was trained for, where that differs; for runs that
    still share a name the run folder's name in parentheses, else its path. Only one run given twice has one name twice.
    """
    models = [str(run.info["model"]["name"]) for run in runs]
    data = [str(run.info["data"]["name"]) for run in runs]
    short = models if len(set(data)) <= 1 else [f"{model} on {on}" for model, on in zip(models, data, strict=True)]
    ways = [run.info["options"].get("objective") for run in runs]
    if len(set(ways)) > 1:
        short = [f"{name}, {way}" if way else name for name, way in zip(short, ways, strict=True)]
    names, paths = short, [run.path.resolve() for run in runs]
    parts = list(zip(*(path.parts[::-1] for path in paths), strict=False))
    differing = next((folders for folders in parts if len(set(folders)) > 1), short)
    for marks in (differing, list(map(str, paths))):
        times = Counter(names)
        names = [
            f"{base} ({mark})" if times[name] > 1 else name
            for name, base, mark in zip(names, short, marks, strict=True)
        ]
    return names

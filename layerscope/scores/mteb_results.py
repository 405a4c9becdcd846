"""A folder of results that mteb wrote, a model by layer: `model_meta.json` beside a file per task."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from layerscope.core.errors import LayerscopeError, unreadable
from layerscope.scores.files import refuse_duplicates

META = "model_meta.json"
PLACE = ("layer", "site", "pooling")
LOCAL = "local/"
"""Stands before the name of a model without an organisation, because mteb's own tools read none without."""


def read_mteb(folder: Path) -> pd.DataFrame:
    """Return the main scores below a folder of mteb ≥ 2 as a long frame.

    The folder may be mteb's cache, its `results`, or a model's in it. A score is what `TaskResult.get_score` gives: the
    mean over the splits and subsets that were run. A model's `experiment_kwargs` say layer, site and pooling; results
    without a layer are of kind `baseline`. Raises `LayerscopeError` for what mteb cannot read, for a score that is no
    number and for two results of one task.
    """
    frame = pd.DataFrame(list(_rows(folder)))
    if frame.empty:
        raise LayerscopeError(f"folder {str(folder)!r} holds {META} and no result of any task: evaluate first")
    refuse_duplicates(frame, ("model", "revision", "kind", *PLACE, "task"), folder)
    return frame.astype({"layer": "Int64"})


def refuse_other_data(folder: Path, task: str, revision: str) -> None:
    """Raise where a folder holds scores of a task on other data: one table would mix the two."""
    for path in sorted(folder.glob(f"results/**/{task}.json")):
        try:
            there = json.loads(path.read_text(encoding="utf-8")).get("dataset_revision")
        except (OSError, ValueError, AttributeError):  # not whole: it is judged again
            continue
        if there != revision:
            raise LayerscopeError(other_data(folder, task))


def other_data(folder: Path, task: str) -> str:
    """Return the line that says why a folder takes no scores of a task."""
    return (
        f"{str(folder)!r} holds scores of {task} on other data (another file, --samples or --seed): name another "
        "--out, so that one table does not mix them"
    )


def _rows(folder: Path) -> Iterator[dict[str, Any]]:
    for meta in sorted(folder.rglob(META)):
        about = _about(meta)
        for file in sorted(meta.parent.glob("*.json")):
            if file.name != META:
                task, score = _score(file)
                yield {**about, "task": task, "score": score}


def _about(path: Path) -> dict[str, Any]:
    """Return the model, revision, layer, site and pooling that a `model_meta.json` tells."""
    try:
        meta = json.loads(path.read_text(encoding="utf-8"))
        name, revision = meta["name"], meta.get("revision") or ""
        options = dict(meta.get("experiment_kwargs") or {})
    except OSError as error:
        raise unreadable(path, error) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise LayerscopeError(f"{path} is not a {META} of mteb 2: write the results again with mteb") from error
    layer = options.get("layer")
    if layer is not None and (isinstance(layer, bool) or not isinstance(layer, int) or layer < 0):
        raise LayerscopeError(f"{path}: the layer in experiment_kwargs is {layer!r}, not a whole number of 0 or more")
    kind = "baseline" if layer is None else "layer"
    place = {key: None if kind == "baseline" else options.get(key) for key in ("site", "pooling")}
    return {"model": str(name).removeprefix(LOCAL), "revision": str(revision), "kind": kind, "layer": layer, **place}


def _score(path: Path) -> tuple[str, float]:
    try:
        from mteb.results import TaskResult
    except ImportError as error:
        raise LayerscopeError("reading mteb results needs mteb: pip install 'layerscope[evaluation]'") from error
    try:
        result = TaskResult.from_disk(path)
        name, score = str(result.task_name), float(result.get_score())
    except Exception as error:  # pydantic, JSON and mteb's own converters raise many kinds
        raise LayerscopeError(f"{path} is not a task result that mteb can read: evaluate that task again") from error
    if not math.isfinite(score):
        raise LayerscopeError(f"{path}: the main score of {name} is {score}: evaluate that task again")
    return name, score

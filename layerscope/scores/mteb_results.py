"""A folder of results that mteb wrote, a model by layer: `model_meta.json` beside a file per task."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from layerscope.core.errors import LayerscopeError, unreadable

META = "model_meta.json"
LOCAL = "local/"
"""Stands before the name of a model without an organisation, because mteb's own tools read none without."""


def read_mteb(folder: Path) -> pd.DataFrame:
    """Return the main scores below a folder of mteb ≥ 2 as a long frame.

    The folder may be mteb's cache, its `results`, or a model's in it. A score is what `TaskResult.get_score` gives: the
    mean over the splits and subsets that were run. A model's `experiment_kwargs` say layer, site and pooling; results
    without a layer are of kind `baseline`. Raises `LayerscopeError` for what mteb cannot read and for a score that is
    not finite.
    """
    frame = pd.DataFrame(_rows(folder))
    if frame.empty:
        raise LayerscopeError(f"folder {str(folder)!r} holds {META} and no result of any task: evaluate first")
    return frame


def _rows(folder: Path) -> Iterator[dict[str, Any]]:
    for meta in sorted(folder.rglob(META)):
        about = _about(meta)
        for file in sorted(meta.parent.glob("*.json")):
            if file.name != META:
                task, score = _score(file)
                yield {**about, "task": task, "score": score}


def _about(path: Path) -> dict[str, Any]:
    """Return the model, revision, layer, site and pooling in a `model_meta.json`."""
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
        raise LayerscopeError(f"{path}: the layer in experiment_kwargs is {layer!r}: give a whole number of at least 0")
    about = {"model": str(name).removeprefix(LOCAL), "revision": str(revision)}
    if layer is None:
        return {**about, "kind": "baseline", "layer": None, "site": None, "pooling": None}
    return {**about, "kind": "layer", "layer": layer, "site": options.get("site"), "pooling": options.get("pooling")}


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

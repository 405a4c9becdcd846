"""Published or saved scores, opened; also those that mteb wrote: `model_meta.json` beside a file per task."""

import json
import math
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from layerscope.core import LayerscopeError, existing, require, unreadable
from layerscope.scores.evaluation import STORE, Evaluation, origins_from, read_origins
from layerscope.scores.files import is_csv, read_csv
from layerscope.scores.probe_results import (
    BY_SAMPLE,
    has_probes,
    packed,
    read_probes,
    unpacked,
)
from layerscope.scores.shifts import joined

if TYPE_CHECKING:
    from layerscope.runs.run import Run

META = "model_meta.json"
LOCAL = "local/"
"""Stands before the name of a model without an organisation, because mteb's own tools read none without."""
PUBLISHED = ("model", "layer", "task", "main_score")
GIVE = f"a CSV ({', '.join(PUBLISHED)}), a folder of mteb results, or what Evaluation.save wrote"


def holds_scores(path: Path) -> bool:
    """Return whether a path is a CSV file, or a folder of scores that `open_evaluation` reads."""
    if not path.is_dir():
        return path.is_file() and is_csv(path)
    return STORE.is_in(path) or has_probes(path) or any(path.rglob(META))


def open_evaluation(path: str | Path) -> Evaluation:
    """Open scores of layers on tasks: a CSV, a folder of per-layer mteb results, or what `Evaluation.save` wrote.

    A CSV (also `.csv.gz`) has the columns model, layer, task and main_score, and may have revision,
    site and pooling; an empty main_score is a missing value. In a folder of mteb ≥ 2 layer, site
    and pooling of a model are its `experiment_kwargs`; results without a layer are its baseline.
    Scores of probes in the folder come with them. Raises `LayerscopeError` for a path that holds no
    scores.

    >>> layerscope.open_evaluation("scores.csv")
    Evaluation('scores.csv': 2 models, 4 layers, 2 tasks, 0 missing)
    """
    file = existing(path, "evaluation")
    if STORE.is_in(file):
        return STORE.open(file, _saved)
    if not file.is_dir():
        if not is_csv(file):
            raise LayerscopeError(f"{file} is not an evaluation: give {GIVE}")
        rows = read_csv(file, PUBLISHED, ("revision", "site", "pooling"))
        return Evaluation(rows.rename(columns={"main_score": "score"}), str(file))
    parts = []
    if any(file.rglob(META)):
        parts.append(read_mteb(file))
    if has_probes(file):
        parts.append(read_probes(file))
    if not parts:
        raise LayerscopeError(
            f"folder {str(file)!r} holds neither {STORE.manifest} nor any {META}: give {GIVE}"
        )
    evaluation = Evaluation(pd.concat(parts, ignore_index=True), str(file))
    evaluation.origins = read_origins(file)
    return evaluation


def _saved(
    facts: dict[str, Any], frames: dict[str, pd.DataFrame], _: Path
) -> Evaluation:
    evaluation = Evaluation(frames["scores"], facts["source"])
    evaluation.origins = origins_from(facts["models"])
    return evaluation


def open_run_or_scores(path: str | Path) -> "Run | Evaluation":
    """Open the run or the scores that a path holds.

    Raises `LayerscopeError` where it holds neither.
    """
    from layerscope.runs.folder import RunFolder  # runs import torch
    from layerscope.runs.opening import open_run, refuse_unfinished

    file = existing(path, "run or evaluation")
    if not RunFolder.exists(file) and holds_scores(file):
        return open_evaluation(file)
    if RunFolder.exists(file) or any(file.glob("*/run.json")):
        return open_run(file)
    refuse_unfinished(file)
    raise LayerscopeError(
        f"{str(path)!r} is neither a run nor an evaluation: give the folder of a run, or {GIVE}"
    )


def merged(evaluations: Sequence[Evaluation]) -> Evaluation:
    """Return several evaluations as one; scores of one thing in two of them are an error that names both.

    >>> merged([open_evaluation("scores.csv")]).source
    'scores.csv'
    """
    if len(evaluations) == 1:
        return evaluations[0]
    rows = pd.concat([one.scores for one in evaluations], ignore_index=True)
    whole = Evaluation(rows, " and ".join(one.source for one in evaluations))
    for one in evaluations:
        whole.failed |= one.failed
    return whole


def read_mteb(folder: Path) -> pd.DataFrame:
    """Return the main scores below a folder of mteb ≥ 2 as a long frame.

    The folder may be mteb's cache, its `results`, or a model's in it. A score is what
    `TaskResult.get_score` gives: the mean over the splits and subsets that were run. A model's
    `experiment_kwargs` say layer, site and pooling; results without a layer are of kind `baseline`.
    Raises `LayerscopeError` for what mteb cannot read and for a score that is not finite.
    """
    rows = []
    for meta in sorted(folder.rglob(META)):
        about = _about(meta)
        files = sorted({*meta.parent.glob("*.json")} - {meta})
        rows += [about | _score(file) for file in files]
    if not rows:
        raise LayerscopeError(
            f"folder {str(folder)!r} holds {META} and no result of any task: evaluate first"
        )
    return pd.DataFrame(rows)


def _about(path: Path) -> dict[str, Any]:
    """Return what the results beside a `model_meta.json` are of."""
    try:
        meta = json.loads(path.read_text(encoding="utf-8"))
        name = meta["name"]
        revision = meta.get("revision") or ""
        options = dict(meta.get("experiment_kwargs") or {})
    except OSError as error:
        raise unreadable(path, error) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise LayerscopeError(
            f"{path} is not a {META} of mteb 2: write the results again with mteb"
        ) from error
    layer = options.get("layer")
    if layer is not None and (type(layer) is not int or layer < 0):
        raise LayerscopeError(
            f"{path}: the layer in experiment_kwargs is {layer!r}: give a whole number of at least 0"
        )
    about = {"model": str(name).removeprefix(LOCAL), "revision": str(revision)}
    if layer is None and "mix" not in options:
        return about | {"kind": "baseline"}
    kind = "mix" if layer is None else "layer"
    names = ("layer", "site", "pooling", "mix", "weights")
    return about | {"kind": kind} | {name: options.get(name) for name in names}


def _score(path: Path) -> dict[str, Any]:
    """Return the score of a task."""
    require("evaluation", "reading results of mteb")
    from mteb.results import TaskResult

    try:
        result = TaskResult.from_disk(path)
        name = str(result.task_name)
        score = float(result.get_score())
    # pydantic, JSON and mteb's own converters raise many kinds
    except Exception as error:
        raise LayerscopeError(
            f"{path} is not a task result that mteb can read: evaluate that task again"
        ) from error
    if not math.isfinite(score):
        raise LayerscopeError(
            f"{path}: the main score of {name} is {score}: evaluate that task again"
        )
    return {"task": name, "score": score} | _by_sample(result.scores, score)


def _by_sample(
    scores: Mapping[str, Sequence[Mapping[str, Any]]], score: float
) -> dict[str, Any]:
    """Return standard error, number and values of the samples, where each split and subset of a task has them."""
    sets = []
    for entry in chain.from_iterable(scores.values()):
        if BY_SAMPLE not in entry:
            return {}
        sets.append(unpacked(entry[BY_SAMPLE]))
    values = joined(sets, score)
    n = len(values)
    return {"stderr": values.std() / math.sqrt(n), "n": n, "right": packed(values)}

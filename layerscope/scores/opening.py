"""Published or saved scores, opened."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from layerscope.core.errors import LayerscopeError
from layerscope.core.files import existing
from layerscope.scores.evaluation import STORE, Evaluation
from layerscope.scores.files import is_csv, read_csv
from layerscope.scores.mteb_results import META, read_mteb
from layerscope.scores.origins import from_json, read_origins
from layerscope.scores.probe_results import has_probes, read_probes

PUBLISHED = ("model", "layer", "task", "main_score")
GIVE = f"give a CSV ({', '.join(PUBLISHED)}), a folder of mteb results, or what Evaluation.save wrote"


def holds_scores(path: Path) -> bool:
    """Return whether a path is a CSV file, or a folder of scores that `open_evaluation` reads."""
    if not path.is_dir():
        return path.is_file() and is_csv(path)
    return STORE.is_in(path) or has_probes(path) or next(path.rglob(META), None) is not None


def open_evaluation(path: str | Path) -> Evaluation:
    """Open scores of layers on tasks: a CSV, a folder of per-layer mteb results, or what `Evaluation.save` wrote.

    A CSV (also `.csv.gz`) has the columns model, layer, task and main_score, and may have revision, site and pooling;
    an empty main_score is a missing value. In a folder of mteb ≥ 2 layer, site and pooling of a model are its
    `experiment_kwargs`; results without a layer are its baseline. Scores of probes in the folder come with them. Raises
    `LayerscopeError` for a path that holds no scores.

    >>> layerscope.open_evaluation("scores.csv")
    Evaluation('scores.csv': 2 models, 4 layers, 2 tasks, 0 missing)
    """
    found = existing(path, "evaluation")
    if STORE.is_in(found):
        return STORE.open(found, _saved)
    if not holds_scores(found):
        if found.is_dir():
            raise LayerscopeError(f"folder {str(found)!r} holds neither {STORE.manifest} nor any {META}: {GIVE}")
        raise LayerscopeError(f"{found} is not an evaluation: {GIVE}")
    if not found.is_dir():
        rows = read_csv(found, PUBLISHED, ("revision", "site", "pooling")).rename(columns={"main_score": "score"})
        return Evaluation(rows, str(found))
    parts = [read_mteb(found)] if next(found.rglob(META), None) is not None else []
    parts += [read_probes(found)] if has_probes(found) else []
    evaluation = Evaluation(pd.concat(parts, ignore_index=True), str(found))
    evaluation.origins = read_origins(found)
    return evaluation


def _saved(facts: dict[str, Any], frames: dict[str, pd.DataFrame], _: Path) -> Evaluation:
    evaluation = Evaluation(frames["scores"], facts["source"])
    evaluation.origins = from_json(facts["models"])
    return evaluation


def merged(evaluations: Sequence[Evaluation]) -> Evaluation:
    """Return several evaluations as one; scores of one thing in two of them are an error that names both."""
    if len(evaluations) == 1:
        return evaluations[0]
    for i, one in enumerate(evaluations):
        if any(one.scores.equals(other.scores) for other in evaluations[:i]):
            raise LayerscopeError(f"evaluation {one.source!r} is given twice: name each evaluation once")
    rows = pd.concat([one.scores for one in evaluations], ignore_index=True)
    found = Evaluation(rows, " and ".join(one.source for one in evaluations))
    for one in evaluations:
        found.failed |= one.failed
    return found

"""What is known of a model beside its weights: its folder, its licence, the head of its card, its scores by layer."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from layerscope.inputs.hub import go_offline_without_hub
from layerscope.models.checks import EMBEDDED, embedded
from layerscope.models.weights import HEADS
from layerscope.runs import Run, open_run
from layerscope.runs.depths import NAME, depths

EMBEDDED_HUB = "sentence-transformers/all-MiniLM-L6-v2"
CARD = "README.md"
TERMS = ("LICENSE*", "LICENCE*", "NOTICE*", "COPYING*")
"""Files that go with every copy of the weights."""
KEPT = ("license", "license_name", "license_link", "language", "tags", "datasets", "pipeline_tag", "base_model")
"""What a card says of the model that holds at every depth; its results do not."""
HISTORY = "history"


@dataclass(frozen=True)
class LayerScores:
    """The score of every layer with its standard error, `by_layer`, on `samples` of `data`; `name` is the metric's."""

    name: str
    data: str
    samples: int
    by_layer: Mapping[int, tuple[float, float]]


def scores_of_run(run: Run, pooling: str) -> LayerScores:
    """Return the linear probe of every layer at the site that a truncated model yields."""
    table = run.table()
    at = (table["metric"] == "linear_probe") & (table["site"] == run.final) & (table["pooling"] == pooling)
    return _scores("linear probe", run, table[at].drop_duplicates("layer"))


def scores_of_training(folder: Path, depth: int) -> LayerScores | None:
    """Return what `train` measured of a model of this depth in its folder, None where it did not make it."""
    if not (folder / HISTORY / NAME).is_file():
        return None
    run = open_run(folder / HISTORY)
    table = depths(run)
    rows = None if table is None else table[table["depth"] == depth]
    if rows is None or rows.empty:
        return None
    return _scores(str(rows["metric"].iloc[0]).removeprefix("layer_"), run, rows)


def _scores(name: str, run: Run, rows: pd.DataFrame) -> LayerScores:
    layers, pairs = rows["layer"].astype(int), zip(rows["value"], rows["stderr"], strict=True)
    data = run.info["data"]
    return LayerScores(name, data["name"], data["samples"], dict(zip(layers, pairs, strict=True)))


def whereabouts(given: str, revision: str | None) -> tuple[str | None, Path | None]:
    """Return a model's name on the hub and the folder that its files lie in, each None where there is none."""
    if given == EMBEDDED:
        return EMBEDDED_HUB, Path(embedded(given))
    folder = Path(given).expanduser()
    if not given or folder.exists():
        return None, folder if given and folder.is_dir() else None
    beside = _snapshot(given, revision)
    return (None if beside is None else given), beside


def _snapshot(name: str, revision: str | None) -> Path | None:
    """Return the folder of a hub model's files on this machine, its card, terms and heads fetched where they can be."""
    from huggingface_hub import snapshot_download

    go_offline_without_hub()
    patterns = ["config.json", CARD, HEADS, *TERMS]
    for here in (False, True):
        with suppress(Exception):  # no hub, no such files: the weights that are here need neither
            return Path(snapshot_download(name, revision=revision, allow_patterns=patterns, local_files_only=here))
    return None


def copy_terms(beside: Path | None, folder: Path) -> None:
    """Copy the licence and the notices that lie beside a model."""
    for path in [path for pattern in TERMS for path in sorted(beside.glob(pattern))] if beside is not None else ():
        if path.is_file():
            shutil.copyfile(path, folder / path.name)


def card_head(beside: Path | None) -> dict[str, Any]:
    """Return what the card beside a model says that holds at every depth; nothing of a card that cannot be read."""
    from huggingface_hub import ModelCard

    if beside is None or not (beside / CARD).is_file():
        return {}
    with suppress(Exception):  # written by hand, and broken in as many ways
        head = ModelCard.load(beside / CARD, ignore_metadata_errors=True).data.to_dict()
        return {name: head[name] for name in KEPT if head.get(name)}
    return {}

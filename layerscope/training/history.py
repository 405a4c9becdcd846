"""The history of a training: a run folder without states, whose rows stand at the steps they were measured at."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
from transformers import TrainerCallback

from layerscope.core.errors import LayerscopeError
from layerscope.models import LayeredModel
from layerscope.profiling.identity import about_model, versions
from layerscope.runs import COLUMNS, RunFolder
from layerscope.runs.folder import PLANNED
from layerscope.training.layer_scores import SITE, Row
from layerscope.training.objectives import Objective

KIND = "training"
TABLE = "training"
SAME = (("model", "class"), ("model", "depth"), ("options", "objective"), ("options", "schedule"))
"""What two trainings share whose steps can stand in one history."""


class History:
    """A run folder of the rows of each evaluation; `write` starts it.

    A run that is there goes on where it is of the same model class, depth, objective and schedule: what was measured
    after the step that a training starts at is dropped, by one that starts anew all but its step 0. Of several
    evaluation sets each has a run of its own, in a folder by its name in this one.
    """

    def __init__(self, path: str | Path, manifest: dict[str, Any]) -> None:
        """Take a folder; raises `LayerscopeError` where another run lies in it."""
        self.path, self.manifest = Path(path), manifest
        for place in self._places():
            self._refuse_another(RunFolder(place))

    def write(self, step: int, rows: list[Row], data: dict[str, Any], name: str = "") -> None:
        """Add the rows of an evaluation, on the set `name` where there are several; the same step's are replaced."""
        path = self.path / name
        if RunFolder.exists(path):
            folder = RunFolder(path)
        else:
            plan = pd.DataFrame(columns=sorted(PLANNED))
            folder = RunFolder.create(path, self.manifest | {"data": data}, plan)
            folder.log("started")
        new = pd.DataFrame(rows, columns=list(COLUMNS)).assign(step=step, part=self.manifest["model"]["part"])
        old = _rows(folder)
        whole = pd.concat([old[old["step"] != step], new.astype(COLUMNS)], ignore_index=True)
        folder.write_table(TABLE, whole.sort_values("step", kind="stable", ignore_index=True))

    def rewind(self, step: int) -> None:
        """Drop what was measured after a step, from which a training goes on."""
        for place in self._places():
            folder = RunFolder(place)
            rows = _rows(folder)
            if len(rows) and rows["step"].max() > step:
                folder.write_table(TABLE, rows[rows["step"] <= step])

    def _places(self) -> list[Path]:
        """Folders of the runs that are there."""
        return sorted(file.parent for file in (*self.path.glob("run.json"), *self.path.glob("*/run.json")))

    def _refuse_another(self, folder: RunFolder) -> None:
        there = folder.manifest
        if there.get("kind") != KIND:
            raise LayerscopeError(f"{str(folder.path)!r} holds a run that is not a history of a training: give another")
        for group, name in SAME:
            old, new = there[group].get(name), self.manifest[group].get(name)
            if old != new:
                raise LayerscopeError(
                    f"{str(folder.path)!r} holds the history of another training ({name}: {old} there, {new} here): "
                    "give another folder, or delete it"
                )


class Rewinds(TrainerCallback):  # type: ignore[misc]
    """At the start of a training, takes from a history what lies after the step it starts at."""

    def __init__(self, history: History) -> None:
        self.history = history

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Drop later rows, in the process that writes."""
        if state.is_world_process_zero:
            self.history.rewind(state.global_step)


def manifest(model: LayeredModel, objective: Objective, language_model: bool, args: Any, notes: list[str]) -> Any:
    """Return what `run.json` tells of a training, all but its data."""
    told = about_model(model, model.loaded.name) | {"sites": [SITE], "language_model": language_model}
    chosen = ("learning_rate", "per_device_train_batch_size", "gradient_accumulation_steps", "num_train_epochs",
              "max_steps", "warmup_steps", "weight_decay", "lr_scheduler_type", "optim", "seed")  # fmt: skip
    return {
        **versions(),
        "kind": KIND,
        "command": "",
        "model": told,
        "pooling": [],
        "pair_pooling": [],
        "options": {
            "objective": objective.name,
            "schedule": objective.schedule,
            "weights": str(objective.weights),
            "metrics": [],
            **{name: _plain(getattr(args, name, None)) for name in chosen},
        },
        "notes": notes,
    }


def about_data(dataset: Any, samples: int, modality: str) -> dict[str, Any]:
    """Return what `run.json` tells of the samples a training is evaluated on; `dataset.name` names them, if it has."""
    name = getattr(dataset, "name", None)
    named = name if isinstance(name, str) and name else "evaluation data"
    return {"name": named, "source": named, "modality": modality, "samples": samples, "labels": True}


def _rows(folder: RunFolder) -> pd.DataFrame:
    if not folder.has_table(TABLE):
        return pd.DataFrame(columns=list(COLUMNS)).astype(COLUMNS)
    return folder.read_table(TABLE).astype(COLUMNS)


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(getattr(value, "value", value))

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
"""What two trainings must share for their steps to stand in one history."""
CHOSEN = ("learning_rate", "per_device_train_batch_size", "gradient_accumulation_steps", "num_train_epochs",
          "max_steps", "warmup_steps", "weight_decay", "lr_scheduler_type", "optim", "seed")  # fmt: skip
"""The Trainer's arguments that a history keeps."""


class History(TrainerCallback):  # type: ignore[misc]
    """A run folder of the rows of each evaluation; `write` starts it.

    A run that is there continues where it has the same model class, depth, objective and schedule: rows after the step
    that a training starts at are dropped, and a training that starts anew keeps only its step 0. With several
    evaluation sets each has a run of its own, in a folder of its name in this one.
    """

    def __init__(self, path: str | Path, manifest: dict[str, Any]) -> None:
        """Take a folder; raises `LayerscopeError` where another run lies in it."""
        self.path, self.manifest = Path(path), manifest
        for folder in self._folders():
            self._refuse_another(folder)

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Drop what was measured after the step that a training starts at, in the process that writes."""
        for folder in self._folders() if state.is_world_process_zero else ():
            rows = _rows(folder)
            if len(rows) and rows["step"].max() > state.global_step:
                folder.write_table(TABLE, rows[rows["step"] <= state.global_step])

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

    def _folders(self) -> list[RunFolder]:
        """Return the runs that are there."""
        files = (*self.path.glob("run.json"), *self.path.glob("*/run.json"))
        return [RunFolder(file.parent) for file in sorted(files)]

    def _refuse_another(self, folder: RunFolder) -> None:
        there = folder.manifest
        if there.get("kind") != KIND:
            raise LayerscopeError(f"{str(folder.path)!r} holds a run that is not a training: give another folder")
        for group, name in SAME:
            old, new = there[group].get(name), self.manifest[group].get(name)
            if old != new:
                raise LayerscopeError(
                    f"{str(folder.path)!r} holds the history of another training ({name}: {old} there, {new} here): "
                    "give another folder, or delete it"
                )


def manifest(model: LayeredModel, objective: Objective, language_model: bool, args: Any, notes: list[str]) -> Any:
    """Return what `run.json` holds of a training, all but its data."""
    return {
        **versions(),
        "kind": KIND,
        "command": "",
        "model": about_model(model, model.loaded.name) | {"sites": [SITE], "language_model": language_model},
        "pooling": [],
        "pair_pooling": [],
        "options": {
            "objective": objective.name,
            "schedule": objective.schedule,
            "weights": str(objective.weights),
            "metrics": [],
            **{name: getattr(args, name, None) for name in CHOSEN},
        },
        "notes": notes,
    }


def _rows(folder: RunFolder) -> pd.DataFrame:
    if not folder.has_table(TABLE):
        return pd.DataFrame(columns=list(COLUMNS)).astype(COLUMNS)
    return folder.read_table(TABLE).astype(COLUMNS)

"""What stands beside a training: a guard that stops it before it spoils itself, and the history of its evaluations."""

import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import torch
import torch.distributed as dist
from torch import Tensor
from transformers import TrainerCallback
from transformers.trainer_utils import get_last_checkpoint

from layerscope.core import LayerscopeError, versions
from layerscope.models import LayeredModel, evaluating
from layerscope.models.identity import about_model
from layerscope.runs import COLUMNS, RunFolder
from layerscope.runs.folder import PLANNED
from layerscope.training.layer_scores import Row
from layerscope.training.objectives import Objective

MEND = "lower the learning rate or fix the data"
KIND = "training"
"""Of the run, and what its table is called."""
SAME = (
    ("model", "class"),
    ("model", "depth"),
    ("options", "objective"),
    ("options", "schedule"),
)
"""What two trainings must share for their steps to stand in one history."""
CHOSEN = ("learning_rate", "per_device_train_batch_size", "gradient_accumulation_steps", "num_train_epochs",
          "max_steps", "warmup_steps", "weight_decay", "lr_scheduler_type", "optim", "seed")  # fmt: skip
"""The Trainer's arguments that a history keeps."""


Readings = Callable[[Any, Any], Iterator[tuple[int, Tensor]]]
"""Yields the layer of each exit of a model with what it gives for a batch without labels."""


class Guard(TrainerCallback):  # type: ignore[misc]  # transformers is not typed
    """Stops a step whose loss is NaN or infinite before the weights take it, and a save of weights that are.

    The losses of a step are read from their device once, between backward and optimiser; all
    processes stop together.
    """

    def __init__(self, readings: Readings) -> None:
        """Take what reads the exits of the model that is trained."""
        self.readings = readings
        self.batches: list[tuple[Tensor, Any]] = []

    def see(self, loss: Tensor, batch: Any) -> None:
        """Keep the loss of a batch of the step, and the batch."""
        self.batches.append((loss.detach(), batch))

    def on_pre_optimizer_step(
        self, args: Any, state: Any, control: Any, **others: Any
    ) -> None:
        """Raise `LayerscopeError` where a loss of this step is not finite."""
        batches = self.batches
        self.batches = []
        bad = torch.stack([~torch.isfinite(loss) for loss, _ in batches])
        if not _largest(bad.any().float()):
            return
        batch = batches[int(bad.int().argmax())][1]
        first = math.inf  # layer whose exit is not finite
        with evaluating(others["model"]), torch.no_grad():  # one forward
            for layer, read in self.readings(others["model"], batch):
                if not torch.isfinite(read).all():
                    first = min(first, layer)
        first = -_largest(torch.tensor(-float(first), device=bad.device))
        where = f"layer {first:.0f} is the first whose exit is not finite"
        if math.isinf(first):
            where = "every exit is finite"
        raise LayerscopeError(
            f"the loss of step {state.global_step + 1} is NaN or infinite, {where}: {_mend(args)}"
        )

    def on_step_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        """Raise `LayerscopeError` where a weight that is to be saved is not finite."""
        if not control.should_save:
            return
        for name, weight in others["model"].named_parameters():
            if weight.requires_grad and not torch.isfinite(weight).all():
                raise LayerscopeError(
                    f"after step {state.global_step} {name} holds NaN or infinity: {_mend(args)}"
                )


def _mend(args: Any) -> str:
    """Return what to do about it, in half a line: where the last good checkpoint is."""
    saved = None
    if Path(args.output_dir).is_dir():
        saved = get_last_checkpoint(args.output_dir)
    if saved is None:
        return f"no checkpoint was written; {MEND}, and train again"
    return f"nothing was written after the last good checkpoint, {saved!r}; {MEND}, and resume from it"


def _largest(value: Tensor) -> float:
    """Return the largest value that a process has."""
    if dist.is_available() and dist.is_initialized():
        dist.all_reduce(value, dist.ReduceOp.MAX)
    return float(value)


class History(TrainerCallback):  # type: ignore[misc]  # transformers is not typed
    """A run folder of the rows of each evaluation.

    A run that is there continues, without the rows after the step that a training starts at.
    """

    def __init__(
        self,
        path: str | Path,
        model: LayeredModel,
        objective: Objective,
        args: Any,
        site: str,
        *,
        language_model: bool = False,
    ) -> None:
        """Take a folder, and what a Trainer with these arguments trains; raises where another run lies in it."""
        self.path = Path(path)
        self.modality = model.encoder.modality
        about = about_model(model, model.name)
        self.manifest: dict[str, Any] = {
            **versions(),
            "kind": KIND,
            "command": "",
            "pooling": [],
            "pair_pooling": [],
            "model": about | {"sites": [site], "language_model": language_model},
            "options": {
                "objective": objective.name,
                "schedule": objective.schedule,
                "weights": str(objective.weights),
                "metrics": [],
                **{name: getattr(args, name, None) for name in CHOSEN},
            },
            "notes": [*model.notes],
        }
        if RunFolder.exists(self.path):
            self._refuse_another(RunFolder(self.path).manifest)

    def _refuse_another(self, there: Mapping[str, Any]) -> None:
        """Raise where a run is of another training."""
        for group, key in SAME:
            old = there[group].get(key)
            new = self.manifest[group].get(key)
            if old != new or there.get("kind") != KIND:
                raise LayerscopeError(
                    f"{str(self.path)!r} holds another training ({key}: {old} there, {new} here): give another "
                    "folder, or delete it"
                )

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Drop what was measured after the step that a training starts at, in the process that writes."""
        if state.is_world_process_zero and RunFolder.exists(self.path):
            folder = RunFolder(self.path)
            rows = _rows(folder)
            kept = rows[rows["step"] <= state.global_step]
            if len(kept) < len(rows):
                folder.write_table(KIND, kept)

    def add(self, step: int, rows: list[Row], data: Any, samples: int) -> None:
        """Add the rows of an evaluation on a data set; those of the same step are replaced."""
        if not rows:
            return
        if not RunFolder.exists(self.path):
            self._create(str(data or "evaluation data"), samples)
        folder = RunFolder(self.path)
        part = self.manifest["model"]["part"]
        new = pd.DataFrame(rows, columns=list(COLUMNS))
        new = new.assign(step=step, part=part)
        old = _rows(folder)
        others = old[old["step"] != step]
        history = pd.concat([others, new.astype(COLUMNS)])
        history = history.sort_values("step", kind="stable", ignore_index=True)
        folder.write_table(KIND, history)

    def _create(self, name: str, samples: int) -> None:
        """Start the run of an evaluation on data of this name."""
        manifest = self.manifest | {
            "data": {
                "name": name,
                "source": name,
                "modality": self.modality,
                "samples": samples,
                "labels": True,
            }
        }
        plan = pd.DataFrame(columns=sorted(PLANNED))
        RunFolder.create(self.path, manifest, plan).log("started")


def _rows(folder: RunFolder) -> pd.DataFrame:
    """Return what was measured so far, no row where nothing was."""
    rows = pd.DataFrame(columns=list(COLUMNS))
    if folder.has_table(KIND):
        rows = folder.read_table(KIND)
    return rows.astype(COLUMNS)

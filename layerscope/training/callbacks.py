"""What stands beside a training: a guard that stops it before it spoils itself, and the history of its evaluations."""

import dataclasses
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import torch
import torch.distributed as dist
from torch import Tensor
from transformers import Trainer, TrainerCallback
from transformers.trainer_utils import get_last_checkpoint

from layerscope.core.environment import versions
from layerscope.core.errors import LayerscopeError
from layerscope.core.files import aside, read_json
from layerscope.models.capture import evaluating
from layerscope.models.identity import about_model
from layerscope.runs import COLUMNS, RunFolder
from layerscope.runs.folder import PLANNED
from layerscope.training.layer_scores import Row

RECORD = "objective.json"
"""The file in every checkpoint that says what its exits were trained for."""
MEND = "lower the learning rate or fix the data"
KIND = "training"
"""Of the run, and what its table is called."""
SAME = (("model", "class"), ("model", "depth"), ("options", "objective"), ("options", "schedule"))
"""What two trainings must share for their steps to stand in one history."""
CHOSEN = ("learning_rate", "per_device_train_batch_size", "gradient_accumulation_steps", "num_train_epochs",
          "max_steps", "warmup_steps", "weight_decay", "lr_scheduler_type", "optim", "seed")  # fmt: skip
"""The Trainer's arguments that a history keeps."""


class Guard(TrainerCallback):  # type: ignore[misc]  # transformers is not typed
    """Stops a step whose loss is NaN or infinite before the weights take it, and checks what is saved and resumed.

    The losses of a step are read from their device once, between backward and optimiser; all
    processes stop together.
    """

    def __init__(self, trainer: Any, layers: Sequence[int]) -> None:
        """Watch the training of a model with exits at these layers."""
        self.trainer = trainer
        objective = dataclasses.asdict(trainer.objective)
        record = {"objective": objective.pop("name"), "layers": layers, **objective}
        self.record = json.loads(json.dumps(record))
        self.saved: str | None = None
        self.seen: list[
            tuple[Tensor, dict[str, Any]]
        ] = []  # the loss of each batch of a step, and the batch

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        """Raise `LayerscopeError` where a loss of this step is not finite."""
        seen, self.seen = self.seen, []
        bad = torch.stack([~torch.isfinite(loss) for loss, _ in seen])
        if not _largest(bad.any().float()):
            return
        which = int(bad.int().argmax())
        inputs = {key: value for key, value in seen[which][1].items() if key != "labels"}
        with evaluating(others["model"]), torch.no_grad():  # one forward
            reads = self.trainer.readings(others["model"], inputs)
            broken = [layer for layer, read in reads if not bool(torch.isfinite(read).all())]
        layer = -_largest(-torch.tensor(float(min(broken, default=math.inf)), device=bad.device))
        finite = math.isinf(layer)
        where = (
            "every exit is finite"
            if finite
            else f"layer {layer:.0f} is the first whose exit is not finite"
        )
        raise LayerscopeError(
            f"the loss of step {state.global_step + 1} is NaN or infinite, {where}: {self._mend()}"
        )

    def before_save(self, folder: Path) -> None:
        """Check that every weight is finite, then put the record into the new checkpoint, in one process."""
        step = self.trainer.state.global_step
        for name, weight in self.trainer.model.named_parameters():
            if weight.requires_grad and not bool(torch.isfinite(weight).all()):
                raise LayerscopeError(
                    f"after step {step} {name} holds NaN or infinity: {self._mend()}"
                )
        if self.trainer.args.should_save:
            path, text = folder / f"checkpoint-{step}" / RECORD, json.dumps(self.record, indent=1)
            path.parent.mkdir(parents=True, exist_ok=True)
            aside(path, lambda part: part.write_text(text, encoding="utf-8"))

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Remember the newest checkpoint."""
        self.saved = str(Path(args.output_dir) / f"checkpoint-{state.global_step}")

    def check_resumed(self, checkpoint: str | bool | None) -> None:
        """Raise `LayerscopeError` where a checkpoint that is to be resumed was trained for something else."""
        out = self.trainer.args.output_dir
        folder = (
            get_last_checkpoint(out) if checkpoint is True and Path(out).is_dir() else checkpoint
        )
        if not folder or folder is True:
            return
        path = Path(folder) / RECORD
        if not path.is_file():
            raise LayerscopeError(
                f"{str(folder)!r} does not hold its objective, so it cannot be resumed with "
                f"{self.record['objective']!r}: give it as the model of a new training"
            )
        found = read_json(path)
        others = [key for key, value in self.record.items() if found.get(key) != value]
        if others:
            old, new = (
                ", ".join(f"{key} {one.get(key)!r}" for key in others)
                for one in (found, self.record)
            )
            raise LayerscopeError(
                f"{str(folder)!r} was trained with {old}, this training has {new}: give the same, or give it as the "
                "model of a new training"
            )
        self.saved = str(folder)

    def _mend(self) -> str:
        if self.saved is None:
            return f"no checkpoint was written; {MEND}, and train again"
        return (
            f"nothing was written after the last good checkpoint, {self.saved!r}; {MEND}, and resume from it, or give "
            "it as the model of a new training"
        )


def _largest(value: Tensor) -> float:
    if dist.is_available() and dist.is_initialized():
        dist.all_reduce(value, dist.ReduceOp.MAX)
    return float(value)


class Watched(Trainer):  # type: ignore[misc]  # transformers is not typed
    """A `guard`, and a `history` of what each layer scores at each evaluation, for trainers of exits.

    They have an `objective`, a `layered` model, the `site` of its scores, and `readings`: what each
    exit gives.
    """

    def watch(self, layers: Sequence[int], history: str | Path | None) -> None:
        """Guard the exits at these layers, and write what layers score into a run folder, where one is given."""
        self.guard = Guard(self, layers)
        self.add_callback(self.guard)
        self.history = None if history is None else History(history, self)
        if self.history is not None:
            self.add_callback(self.history)

    def compute_loss(
        self, model: Any, inputs: Any, return_outputs: bool = False, *args: Any, **named: Any
    ) -> Any:
        """Return the Trainer's loss, which the guard sees."""
        found = super().compute_loss(model, inputs, return_outputs, *args, **named)
        if model.training:
            self.guard.seen.append(
                ((found[0] if return_outputs else found).detach(), inputs)
            )  # read once a step
        return found

    def train(
        self, resume_from_checkpoint: str | bool | None = None, *args: Any, **options: Any
    ) -> Any:
        """Train as the Trainer does; raises `LayerscopeError` for a loss that is not finite or another objective."""
        self.guard.check_resumed(resume_from_checkpoint)
        return super().train(resume_from_checkpoint, *args, **options)

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        self.guard.before_save(Path(self._get_output_dir(trial)))
        super()._save_checkpoint(model, trial)

    def keep(self, which: str, name: Any, samples: int, rows: list[Row]) -> None:
        """Add the scores of an evaluation on data of this name to the history, in the process that writes."""
        if self.history is None or not rows or not self.is_world_process_zero():
            return
        name = name if isinstance(name, str) and name else "evaluation data"
        about = {
            "name": name,
            "source": name,
            "modality": self.layered.encoder.modality,
            "samples": samples,
        }
        self.history.write(self.state.global_step, rows, about | {"labels": True}, which)


class History(TrainerCallback):  # type: ignore[misc]  # transformers is not typed
    """A run folder of the rows of each evaluation; of several evaluation sets each has one in a folder of its name.

    A run that is there continues, without the rows after the step that a training starts at.
    """

    def __init__(self, path: str | Path, trainer: Any) -> None:
        """Take a folder; raises `LayerscopeError` where another run lies in it."""
        model, objective, language_model = (
            trainer.layered,
            trainer.objective,
            trainer.scoring["language_model"],
        )
        self.path = Path(path)
        self.manifest: dict[str, Any] = {
            **versions(),
            "kind": KIND,
            "command": "",
            "pooling": [],
            "pair_pooling": [],
            "model": about_model(model, model.loaded.name)
            | {"sites": [trainer.site], "language_model": language_model},
            "options": {
                "objective": objective.name,
                "schedule": objective.schedule,
                "weights": str(objective.weights),
                "metrics": [],
                **{name: getattr(trainer.args, name, None) for name in CHOSEN},
            },
            "notes": [*model.notes, *filter(None, [trainer.left_out])],
        }
        for folder in self._folders():
            there, name = folder.manifest, repr(str(folder.path))
            if there.get("kind") != KIND:
                raise LayerscopeError(
                    f"{name} holds a run that is not a training: give another folder"
                )
            for group, key in SAME:
                old, new = there[group].get(key), self.manifest[group].get(key)
                if old != new:
                    raise LayerscopeError(
                        f"{name} holds the history of another training ({key}: {old} there, {new} here): give another "
                        "folder, or delete it"
                    )

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Drop what was measured after the step that a training starts at, in the process that writes."""
        for folder in self._folders() if state.is_world_process_zero else ():
            rows = _rows(folder)
            if len(rows) and rows["step"].max() > state.global_step:
                folder.write_table(KIND, rows[rows["step"] <= state.global_step])

    def write(self, step: int, rows: list[Row], data: dict[str, Any], name: str = "") -> None:
        """Add the rows of an evaluation, on the set `name` where there are several; the same step's are replaced."""
        path, known = self.path / name, RunFolder.exists(self.path / name)
        plan = pd.DataFrame(columns=sorted(PLANNED))
        folder = (
            RunFolder(path)
            if known
            else RunFolder.create(path, self.manifest | {"data": data}, plan)
        )
        if not known:
            folder.log("started")
        new = pd.DataFrame(rows, columns=list(COLUMNS)).assign(
            step=step, part=self.manifest["model"]["part"]
        )
        old = _rows(folder)
        whole = pd.concat([old[old["step"] != step], new.astype(COLUMNS)], ignore_index=True)
        folder.write_table(KIND, whole.sort_values("step", kind="stable", ignore_index=True))

    def _folders(self) -> list[RunFolder]:
        files = (*self.path.glob("run.json"), *self.path.glob("*/run.json"))
        return [RunFolder(file.parent) for file in sorted(files)]


def _rows(folder: RunFolder) -> pd.DataFrame:
    if not folder.has_table(KIND):
        return pd.DataFrame(columns=list(COLUMNS)).astype(COLUMNS)
    return folder.read_table(KIND).astype(COLUMNS)

"""What stops a training before it spoils itself, and keeps a checkpoint from resuming under another objective."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from transformers import TrainerCallback
from transformers.trainer_utils import get_last_checkpoint

from layerscope.core.errors import LayerscopeError
from layerscope.core.files import aside, read_json
from layerscope.models.capture import evaluating
from layerscope.training.exits import Exits

RECORD = "objective.json"
"""The file in every checkpoint that says what its exits were trained for."""
MEND = "lower the learning rate or mend the data"


class Guard(TrainerCallback):  # type: ignore[misc]
    """Stops a step whose loss is NaN or infinite before the weights take it, and checks what is saved and resumed.

    The losses of a step are watched on their device and read there once, between backward and optimiser. By default
    the Trainer has by then read the loss of each batch itself (`logging_nan_inf_filter`), so this read waits for
    nothing more. Several processes tell each other, and stop together.
    """

    def __init__(self, trainer: Any) -> None:
        """Watch the training of a model with exits."""
        self.trainer = trainer
        objective = dataclasses.asdict(trainer.objective)
        record = {"objective": objective.pop("name"), "layers": trainer.exit_loss.exits.layers, **objective}
        self.record = json.loads(json.dumps(record))
        self.saved: str | None = None
        self._seen: list[tuple[Tensor, dict[str, Any]]] = []

    def watch(self, loss: Tensor, inputs: dict[str, Any]) -> None:
        """Take note of a batch's loss, without reading it."""
        self._seen.append((loss.detach(), inputs))

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        """Raise `LayerscopeError` where a loss of this step is not finite."""
        seen, self._seen = self._seen, []
        bad = torch.stack([~torch.isfinite(loss) for loss, _ in seen])
        if not _largest(bad.any().float()):
            return
        which = int(bad.int().argmax())
        inputs = {key: value for key, value in seen[which][1].items() if key != "labels"}
        own = torch.tensor(_first_broken(self.trainer.exit_loss.exits, others["model"], inputs), device=bad.device)
        layer = -_largest(-own)
        where = (
            f"layer {layer:.0f} is the first whose exit is not finite" if layer < math.inf else "every exit is finite"
        )
        raise LayerscopeError(f"the loss of step {state.global_step + 1} is NaN or infinite, {where}: {self._mend()}")

    def before_save(self, folder: Path) -> None:
        """Check that every weight is finite, then put the record into the new checkpoint, in one process."""
        step = self.trainer.state.global_step
        for name, weight in self.trainer.model.named_parameters():
            if weight.requires_grad and not bool(torch.isfinite(weight).all()):
                raise LayerscopeError(f"after step {step} {name} holds NaN or infinity: {self._mend()}")
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
        folder = get_last_checkpoint(out) if checkpoint is True and Path(out).is_dir() else checkpoint
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
            old, new = (", ".join(f"{key} {one.get(key)!r}" for key in others) for one in (found, self.record))
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
    """Return the largest of a number over all processes."""
    if dist.is_available() and dist.is_initialized():
        dist.all_reduce(value, dist.ReduceOp.MAX)
    return float(value)


@torch.no_grad()
def _first_broken(exits: Exits, model: nn.Module, inputs: dict[str, Any]) -> float:
    """Return the first layer whose exit gives logits that are not finite, found by one forward; else infinity."""
    with evaluating(model):
        for layer, state in zip(exits.layers, exits(lambda: model(**inputs)), strict=True):
            if not bool(torch.isfinite(state if exits.head is None else exits.head(state)).all()):
                return float(layer)
    return math.inf


def check_options(trainer: Any) -> None:
    """Raise `LayerscopeError` for options of the Trainer that would bypass the exits."""
    for name, owner in (("label_smoothing_factor", trainer.args), ("compute_loss_func", trainer)):
        if getattr(owner, name):
            raise LayerscopeError(f"{name} takes a loss of the last logits and ignores the exits: leave it out")
    if trainer.args.n_gpu > 1:
        raise LayerscopeError(
            f"one process copies the model to {trainer.args.n_gpu} GPUs, and copies have no exits: start one process "
            f"for each, by torchrun --nproc_per_node {trainer.args.n_gpu}"
        )

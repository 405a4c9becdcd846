"""What stops a training before it spoils itself, and keeps a checkpoint from going on under another objective."""

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
from layerscope.training.exit_loss import ExitLoss

RECORD = "objective.json"
"""In every checkpoint: what its exits were asked for."""


class Guard(TrainerCallback):  # type: ignore[misc]
    """Stops a step whose loss is NaN or infinite before the weights take it, and checks what is saved and resumed.

    The losses of a step are watched on their device and read there once, between backward and optimiser. By default
    the Trainer has by then read the loss of each batch itself (`logging_nan_inf_filter`), so this read waits for
    nothing more. Several processes tell each other, and stop together.
    """

    def __init__(self, exit_loss: ExitLoss) -> None:
        """Watch the training of a model with exits."""
        self.exit_loss = exit_loss
        self.record = json.loads(json.dumps(_record(exit_loss)))
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
        which = next((i for i, one in enumerate(bad.tolist()) if one), 0)
        inputs = {key: value for key, value in seen[which][1].items() if key != "labels"}
        own = torch.tensor(_first_broken(self.exit_loss, others["model"], inputs), device=bad.device)
        layer = -_largest(-own)
        where = (
            "every exit is finite" if math.isinf(layer) else f"layer {layer:.0f} is the first whose exit is not finite"
        )
        raise LayerscopeError(f"the loss of step {state.global_step + 1} is NaN or infinite, {where}: {self._mend()}")

    def before_save(self, model: nn.Module, folder: str, step: int, writes: bool) -> None:
        """Check that every weight is finite, then let this process, if it writes, put the record into the folder."""
        for name, weight in model.named_parameters():
            if weight.requires_grad and not bool(torch.isfinite(weight).all()):
                raise LayerscopeError(f"after step {step} {name} holds NaN or infinity: {self._mend()}")
        if writes:
            Path(folder).mkdir(parents=True, exist_ok=True)
            aside(
                Path(folder) / RECORD, lambda part: part.write_text(json.dumps(self.record, indent=1), encoding="utf-8")
            )

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Remember the newest checkpoint."""
        self.saved = str(Path(args.output_dir) / f"checkpoint-{state.global_step}")

    def resuming(self, checkpoint: str | bool | None, output_dir: str) -> None:
        """Raise `LayerscopeError` where a checkpoint to go on from was trained for something else."""
        folder = get_last_checkpoint(output_dir) if checkpoint is True and Path(output_dir).is_dir() else checkpoint
        if not folder or folder is True:
            return
        path = Path(folder) / RECORD
        if not path.is_file():
            raise LayerscopeError(
                f"{str(folder)!r} does not tell its objective, so it cannot be resumed with "
                f"{self.record['objective']!r}: give it as the model of a new training"
            )
        found = read_json(path)
        others = [key for key, value in self.record.items() if found.get(key) != value]
        if others:
            raise LayerscopeError(
                f"{str(folder)!r} was trained with {_told(found, others)}, this training asks for "
                f"{_told(self.record, others)}: ask for the same, or give it as the model of a new training"
            )
        self.saved = str(folder)

    def _mend(self) -> str:
        if self.saved is None:
            return "no checkpoint was written; lower the learning rate or mend the data, and train again"
        return (
            f"nothing was written after the last good checkpoint, {self.saved!r}; "
            "lower the learning rate or mend the data, and resume from it, or give it as the model of a new training"
        )


def _record(exit_loss: ExitLoss) -> dict[str, Any]:
    objective = dataclasses.asdict(exit_loss.objective)
    return {"objective": objective.pop("name"), "layers": exit_loss.exits.layers, **objective}


def _told(record: dict[str, Any], keys: list[str]) -> str:
    return ", ".join(f"{key} {record.get(key)!r}" for key in keys)


def _largest(value: Tensor) -> float:
    """Return the largest of a number over all processes."""
    if dist.is_available() and dist.is_initialized():
        dist.all_reduce(value, dist.ReduceOp.MAX)
    return float(value)


@torch.no_grad()
def _first_broken(exit_loss: ExitLoss, model: nn.Module, inputs: dict[str, Any]) -> float:
    """Return the first layer whose exit gives logits that are not finite, found by one forward; else infinity."""
    exits, head = exit_loss.exits, exit_loss.exits.head
    with evaluating(model):
        for layer, state in zip(exits.layers, exits(lambda: model(**inputs)), strict=True):
            logits = state if head is None else head(state)
            if not bool(torch.isfinite(logits).all()):
                return float(layer)
    return math.inf


def check_options(trainer: Any) -> None:
    """Raise `LayerscopeError` for options of the Trainer that would pass the exits by."""
    for name, value in (
        ("label_smoothing_factor", trainer.args.label_smoothing_factor),
        ("compute_loss_func", trainer.compute_loss_func),
    ):
        if value:
            raise LayerscopeError(f"{name} takes a loss of the last logits and asks no exit: leave it out")
    if trainer.args.n_gpu > 1:
        raise LayerscopeError(
            f"one process copies the model to {trainer.args.n_gpu} GPUs, and copies have no exits: start one process "
            f"for each, by torchrun --nproc_per_node {trainer.args.n_gpu}"
        )

"""One model trained into one folder, from its start or from its last checkpoint.

`fit` makes the Trainer of a task, and `run_to_end` takes any Trainer of transformers to its last
step, from wherever it was stopped.
"""

import math
import multiprocessing
import os
import shutil
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.torch import save_model
from torch.optim.lr_scheduler import LambdaLR
from transformers import PrinterCallback, TrainerCallback, TrainingArguments

from layerscope.core import LayerscopeError, Reporter, count, listed
from layerscope.core.folders import drop_empty
from layerscope.core.processes import launched
from layerscope.core.progress import Advance
from layerscope.inputs.corpus import TRAINED_ON
from layerscope.models import LoadOptions, without_bars
from layerscope.models.placing import torch_device
from layerscope.training.data import Lessons
from layerscope.training.examples import ByLength, Examples
from layerscope.training.folder import TrainingFolder, step_of
from layerscope.training.objectives import Objective
from layerscope.training.options import MODALITIES, SENTENCES, Settings
from layerscope.training.starting_model import PlainClassifier, Start
from layerscope.training.trainer import AlignedTrainer

EVALUATIONS = 10
SHARE = 0.75
"""Samples evaluated over samples trained on, at most, where no interval is given: a step costs about three forwards of
its samples, so that evaluation takes about a fifth of the time."""
CUTS = (0.5, 0.75)
"""Shares of the steps after which "multistep" lowers the learning rate."""
CUT = 0.1
"""What "multistep" multiplies the learning rate by."""
LOADING = 8
"""Processes that load samples for a GPU, at most."""
SHOWN = ("loss", "accuracy", "perplexity", "spearman", "effective_depth")
"""What a line of progress shows."""


class _Trainer(AlignedTrainer):
    """The trainer of the command: its batches hold texts of like lengths, those of an evaluation little padding."""

    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        """Return the order of the training examples."""
        lengths = self.train_dataset.lengths()
        if lengths is None:
            return super()._get_train_sampler(train_dataset)
        return ByLength(self.train_dataset, lengths, self._train_batch_size)

    def _get_eval_sampler(self, eval_dataset: Any) -> Any:
        """Return the order of the evaluation examples, the longest first."""
        lengths = eval_dataset.lengths()
        if lengths is None:
            return super()._get_eval_sampler(eval_dataset)
        return np.argsort(-lengths, kind="stable").tolist()


@dataclass(eq=False)
class _Progress(TrainerCallback):  # type: ignore[misc]  # transformers is not typed
    """A bar with the loss, a line at each evaluation; the last step is evaluated and saved whatever the interval."""

    reporter: Reporter
    title: str
    examples: Examples
    stack: ExitStack
    loss: str = ""
    advance: Advance = field(init=False)

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Show the bar, at the step that the training starts from."""
        bar = self.reporter.bar(self.title, state.max_steps, "steps")
        self.advance = self.stack.enter_context(bar)
        self.advance(state.global_step)

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Have the examples draw what is random anew."""
        # from the state, which a checkpoint restores: a data loader that skips what it has seen
        # gives another epoch
        self.examples.epoch = int((state.epoch or 0) + 1e-6)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
        """Move the bar on, and have the last step evaluated and saved."""
        self.advance(1, self.loss)
        if state.global_step >= state.max_steps:
            control.should_evaluate = control.should_save = True
        return control

    def on_log(self, args: Any, state: Any, control: Any, logs: Any, **_: Any) -> None:
        """Keep the loss for the bar."""
        if "loss" in logs:
            self.loss = f"loss {float(logs['loss']):.3f}"

    def on_evaluate(
        self, args: Any, state: Any, control: Any, metrics: Any, **_: Any
    ) -> None:
        """Show the loss, the whole model's score, and its effective depth."""
        words = [f"step {state.global_step:,}"]
        shown = [name for name in SHOWN if f"eval_{name}" in metrics]
        words += [f"{name} {metrics[f'eval_{name}']:.3f}" for name in shown]
        if state.is_world_process_zero:
            self.reporter.say(" · ".join(words))


def check_reports(name: str) -> None:
    """Raise `LayerscopeError` where a Trainer cannot report to that name, for it is unknown or not installed."""
    from transformers.integrations import get_available_reporting_integrations

    installed = ("none", "all", *get_available_reporting_integrations())
    if name not in installed:
        raise LayerscopeError(
            f"report_to {name!r} is not installed: choose one of {listed(installed)}"
        )


def is_main() -> bool:
    """Return whether this process is the one that writes, of those that torchrun started."""
    return int(os.environ.get("RANK", "0")) == 0


def steps_of(settings: Settings, samples: int) -> int:
    """Return the number of optimiser steps."""
    if settings.max_steps is not None:
        return settings.max_steps
    batches = math.ceil(samples / (settings.batch_size * launched()))
    in_epoch = math.ceil(batches / settings.gradient_accumulation)
    return math.ceil(settings.epochs * in_epoch)


def evaluations_of(settings: Settings, steps: int, evaluated: int) -> int:
    """Return the steps between evaluations, as set or within `SHARE`; there is one before the first, too."""
    if settings.eval_every is not None:
        return settings.eval_every
    trained = steps * settings.batch_size * settings.gradient_accumulation * launched()
    most = int(SHARE * trained / evaluated) - 1
    return math.ceil(steps / max(1, min(EVALUATIONS, most)))


def fit(
    start: Start,
    lessons: Lessons,
    settings: Settings,
    folder: TrainingFolder,
    reporter: Reporter,
) -> None:
    """Train, and write the model as a standard checkpoint into the folder."""
    if folder.finished:
        reporter.say(f"{folder.path} is finished: nothing is left to train")
        return
    steps = steps_of(settings, len(lessons.train))
    eval_steps = evaluations_of(settings, steps, len(lessons.eval))
    samples = count(len(lessons.eval), "sample")
    interval = count(eval_steps, "step")
    reporter.say(f"every layer is evaluated on {samples} after every {interval}")
    with without_bars(), ExitStack() as stack:
        progress = _Progress(
            reporter, str(folder.about["model"]["name"]), lessons.train, stack
        )
        arguments = _arguments(settings, folder, steps, eval_steps)
        trainer = _trainer(start, lessons, settings, folder, arguments)
        trainer.add_callback(progress)
        trainer.remove_callback(PrinterCallback)
        if settings.scheduler == "multistep":
            _step_down(trainer, steps)
        checkpoint = folder.last_checkpoint()
        trainer.args.eval_on_start = checkpoint is None
        run_to_end(trainer, checkpoint, reporter)
        # a standard checkpoint: the heads of exits leave the model, for a file beside it
        heads = None
        if settings.task != SENTENCES:
            heads = trainer.exit_loss.detach()
        trainer.save_model(str(folder.path))
    if not is_main():
        return
    if isinstance(start.module, PlainClassifier):  # under the module's own names
        save_model(start.module.module, str(folder.path / "model.safetensors"))
    if heads is not None:
        heads.save(folder.path)
    if lessons.digests is not None:
        np.save(folder.path / TRAINED_ON, lessons.digests)
    # a pickle of what training.json holds
    (folder.path / "training_args.bin").unlink(missing_ok=True)
    # what the Trainer reported beside its checkpoints, as to TensorBoard, stays
    checkpoints = folder.checkpoints
    for passed in checkpoints.glob("checkpoint-*"):
        shutil.rmtree(passed, ignore_errors=True)
    drop_empty([checkpoints / "eval", checkpoints])
    folder.write(finished=True)


def run_to_end(trainer: Any, checkpoint: Path | None, reporter: Reporter) -> None:
    """Take a Trainer from a checkpoint, or from its start, to its last step."""
    if checkpoint is None:
        trainer.train()
        return
    reporter.say(f"resuming from {checkpoint}")
    if step_of(checkpoint) < trainer.args.max_steps:
        trainer.train(resume_from_checkpoint=str(checkpoint))
    else:  # the Trainer would take one more step
        trainer._load_from_checkpoint(str(checkpoint))


def _trainer(
    start: Start,
    lessons: Lessons,
    settings: Settings,
    folder: TrainingFolder,
    arguments: dict[str, Any],
) -> Any:
    """Return the Trainer of transformers with exits, or that of sentence-transformers for pairs."""
    if settings.task != SENTENCES:
        return _Trainer(
            start.module,
            TrainingArguments(**arguments),
            lessons.collate,
            lessons.train,
            lessons.eval,
            start.processor,
            objective=Objective(
                settings.objective,
                settings.schedule or "always",
                settings.weights,
                settings.beta,
                settings.distillation,
            ),
            layers=settings.layers,
            part=settings.part,
            history=folder.history,
        )
    from sentence_transformers import SentenceTransformerTrainingArguments

    from layerscope.training.sentence_trainer import pair_trainer

    if lessons.train.labels is None:  # each pair is a negative of the others
        arguments["batch_sampler"] = "no_duplicates"
    args = SentenceTransformerTrainingArguments(**arguments)
    return pair_trainer(
        start.module, settings, lessons.train, lessons.eval, folder.history, args
    )


def _arguments(
    settings: Settings, folder: TrainingFolder, steps: int, eval_steps: int
) -> dict[str, Any]:
    """Return the Trainer's arguments that the settings decide."""
    on_gpu = torch_device(LoadOptions(device=settings.device)).type == "cuda"
    save = settings.eval_every or math.ceil(steps / EVALUATIONS)
    scheduler = settings.scheduler
    if scheduler == "multistep":
        scheduler = "constant"
    elif scheduler == "constant" and settings.warmup:
        scheduler = "constant_with_warmup"
    return {
        "output_dir": str(folder.checkpoints),
        "report_to": settings.report_to,
        "max_steps": steps,
        "per_device_train_batch_size": settings.batch_size,
        "per_device_eval_batch_size": settings.batch_size,
        "gradient_accumulation_steps": settings.gradient_accumulation,
        "learning_rate": settings.learning_rate,
        "weight_decay": settings.weight_decay,
        "warmup_steps": settings.warmup,
        "lr_scheduler_type": scheduler,
        "eval_strategy": "steps",
        "eval_steps": eval_steps,
        "save_strategy": "steps",
        "save_steps": save,
        "save_total_limit": 2,
        "logging_steps": max(1, min(10, save)),
        "logging_nan_inf_filter": False,
        "seed": settings.seed,
        "bf16": settings.dtype == "bf16",
        "use_cpu": not on_gpu,
        "remove_unused_columns": False,
        "label_names": ["labels"],
        "disable_tqdm": True,
        "dataloader_pin_memory": on_gpu,
        "dataloader_num_workers": _loading_processes(settings.task, on_gpu),
    }


def _loading_processes(task: str, on_gpu: bool) -> int:
    """Return how many processes open, augment and resize samples for a GPU, which would wait for one alone.

    Texts are tokenised before. Such a process is a copy of this one, so there are none where a
    system starts processes empty.
    """
    if not on_gpu or task not in MODALITIES:
        return 0
    if multiprocessing.get_start_method() != "fork":
        return 0
    cores = (os.cpu_count() or 1) // launched()
    return max(0, min(LOADING, cores - 1))


def _step_down(trainer: Any, steps: int) -> None:
    """Have a Trainer take a tenth of its learning rate after each of `CUTS`."""
    warmup = trainer.args.get_warmup_steps(steps)

    def rate(step: int) -> float:
        passed = sum(step >= cut * steps for cut in CUTS)
        warmed = min(1.0, (step + 1) / (warmup + 1))
        return float(warmed * CUT**passed)

    trainer.create_optimizer()
    trainer.lr_scheduler = LambdaLR(trainer.optimizer, rate)

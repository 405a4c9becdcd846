"""One model trained into one folder, from its start or from its last checkpoint."""

from __future__ import annotations

import math
import os
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from layerscope.core.errors import LayerscopeError, choices
from layerscope.core.progress import Teller
from layerscope.inputs.corpus import count
from layerscope.inputs.seen import FILE, Digests
from layerscope.models import LoadOptions
from layerscope.models.load import without_bars
from layerscope.training.by_length import ByLength, LongestFirst, of_lengths
from layerscope.training.examples import Collator, Epochs, Examples
from layerscope.training.folder import Place, step_of
from layerscope.training.progress import Telling
from layerscope.training.settings import Settings
from layerscope.training.trainer import AlignedTrainer

EVALUATIONS = 10
SHARE = 0.75
"""Samples evaluated over samples trained on, at most, where no interval is given: a step costs about three forwards of
its samples, so that evaluation takes about a fifth of the time."""
CUTS, CUT = (0.5, 0.75), 0.1
"""Shares of the steps after which "multistep" takes a tenth of the rate."""


@dataclass(frozen=True)
class Job:
    """A model to train, on what and how; `seen` are digests of the samples that it learns to classify."""

    name: str
    module: Any
    processor: Any
    train: Examples
    eval: Examples
    collator: Collator
    settings: Settings
    part: str | None = None
    report_to: str = "none"
    keep_checkpoints: bool = False
    seen: Digests | None = None


class _Trainer(AlignedTrainer):
    """The trainer of the command: its batches hold texts of like lengths."""

    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        if of_lengths(self.train_dataset):
            return ByLength(self.train_dataset, self._train_batch_size)
        return super()._get_train_sampler(train_dataset)

    def _get_eval_sampler(self, eval_dataset: Any) -> Any:
        return LongestFirst(eval_dataset) if of_lengths(eval_dataset) else super()._get_eval_sampler(eval_dataset)


def check_reports(name: str) -> None:
    """Raise `LayerscopeError` where a Trainer cannot report to that name, for it is unknown or not installed."""
    from transformers.integrations import get_available_reporting_integrations
    from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK

    if name in ("none", "all"):
        return
    if name not in INTEGRATION_TO_CALLBACK:
        raise LayerscopeError(f"--report-to {name!r} does not exist{choices(name, ['none', *INTEGRATION_TO_CALLBACK])}")
    if name not in get_available_reporting_integrations():
        raise LayerscopeError(f"--report-to {name}: it is not installed")


def is_main() -> bool:
    """Return whether this process is the one that writes, of those that torchrun started."""
    return int(os.environ.get("RANK", "0")) == 0


def steps_of(job: Job) -> int:
    """Return the number of optimiser steps."""
    chosen = job.settings
    if chosen.max_steps is not None:
        return chosen.max_steps
    batches = math.ceil(len(job.train) / (chosen.batch_size * int(os.environ.get("WORLD_SIZE", "1"))))
    return math.ceil(chosen.epochs * max(1, math.ceil(batches / chosen.gradient_accumulation)))


def evaluations_of(job: Job, steps: int) -> tuple[int, bool]:
    """Return the steps between evaluations, and whether there is one before the first step.

    All that was given, or within `SHARE`; the end is always evaluated.
    """
    chosen = job.settings
    if chosen.eval_every is not None:
        return chosen.eval_every, True
    trained = steps * chosen.batch_size * chosen.gradient_accumulation * int(os.environ.get("WORLD_SIZE", "1"))
    most = int(SHARE * trained / max(1, len(job.eval)))
    return math.ceil(steps / min(EVALUATIONS, max(1, most - 1))), most > 1


def fit(job: Job, place: Place, teller: Teller) -> None:
    """Train, write the model as a standard checkpoint into the folder, and take the checkpoints of the way away."""
    checkpoint = place.last_checkpoint()
    steps = steps_of(job)
    if checkpoint is not None:
        teller.say(f"going on from {checkpoint}")
    every, _ = evaluations_of(job, steps)
    teller.say(f"every layer is evaluated on {count(len(job.eval), 'sample')} after every {count(every, 'step')}")
    with without_bars(), closing(Telling(teller, job.name)) as telling:
        trainer = _trainer(job, place, steps, telling, fresh=checkpoint is None)
        if checkpoint is not None and step_of(checkpoint) >= steps:  # the Trainer would take one more step
            trainer._load_from_checkpoint(str(checkpoint))
        else:
            trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
        heads = trainer.exit_loss.own_heads()
        trainer.exit_loss.detach()
        trainer.save_model(str(place.path))
    if not is_main():
        return
    if heads is not None:
        heads.save(place.path)
    if job.seen is not None:
        np.save(place.path / FILE, job.seen)
    (place.path / "training_args.bin").unlink(missing_ok=True)  # a pickle; training.json tells the same
    if not job.keep_checkpoints:
        place.drop_checkpoints()


def _trainer(job: Job, place: Place, steps: int, telling: Telling, *, fresh: bool) -> AlignedTrainer:
    try:
        from transformers import PrinterCallback, TrainingArguments

        chosen = job.settings
        on_gpu = LoadOptions(device=chosen.device).torch_device().type == "cuda"
        every, first = evaluations_of(job, steps)
        save = chosen.eval_every or math.ceil(steps / EVALUATIONS)
        args = TrainingArguments(
            str(place.checkpoints),
            max_steps=steps,
            per_device_train_batch_size=chosen.batch_size,
            per_device_eval_batch_size=chosen.batch_size,
            gradient_accumulation_steps=chosen.gradient_accumulation,
            learning_rate=chosen.learning_rate,
            weight_decay=chosen.weight_decay,
            warmup_steps=chosen.warmup,
            lr_scheduler_type="constant" if chosen.scheduler == "multistep" else _warmed(chosen),
            eval_strategy="steps",
            eval_steps=every,
            eval_on_start=fresh and first,
            save_strategy="steps",
            save_steps=save,
            save_total_limit=2,
            logging_steps=max(1, min(10, save)),
            logging_nan_inf_filter=False,
            seed=chosen.seed,
            bf16=chosen.dtype == "bf16",
            use_cpu=not on_gpu,
            remove_unused_columns=False,
            label_names=["labels"],
            disable_tqdm=True,
            dataloader_pin_memory=on_gpu,
            report_to=job.report_to,
        )
    except ImportError as error:
        raise LayerscopeError('training needs accelerate: pip install "layerscope[accelerate]"') from error
    trainer = _Trainer(
        model=job.module,
        objective=chosen.for_exits(),
        layers=chosen.layers,
        part=job.part,
        history=place.history,
        args=args,
        train_dataset=job.train,
        eval_dataset=job.eval,
        data_collator=job.collator,
        processing_class=job.processor,
        callbacks=[telling, Epochs(job.train)],
    )
    trainer.remove_callback(PrinterCallback)
    if chosen.scheduler == "multistep":
        trainer.create_optimizer()
        trainer.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(trainer.optimizer, _multistep(args, steps))
    return trainer


def _warmed(chosen: Settings) -> str:
    return "constant_with_warmup" if chosen.scheduler == "constant" and chosen.warmup else chosen.scheduler


def _multistep(args: Any, steps: int) -> Any:
    warm = args.get_warmup_steps(steps)

    def rate(step: int) -> float:
        return float(min(1.0, (step + 1) / (warm + 1)) * CUT ** sum(step >= cut * steps for cut in CUTS))

    return rate


def standard(settings: Settings) -> Settings:
    """Return the settings of a baseline: the same recipe, the last layer's loss alone."""
    return replace(settings, objective="standard", layers=None, distillation=0.0)

"""One model trained into one folder, from its start or from its last checkpoint."""

import math
import os
import shutil
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_model
from transformers import TrainerCallback

from layerscope.core.errors import LayerscopeError, count
from layerscope.core.option_kinds import OneOf
from layerscope.core.options import Asked
from layerscope.core.processes import launched
from layerscope.core.progress import Advance, Reporter
from layerscope.inputs.corpus import TRAINED_ON, Digests
from layerscope.models import LoadOptions
from layerscope.models.loading import without_bars
from layerscope.models.placing import torch_device
from layerscope.models.weights import ExitHeads
from layerscope.training.data import ByLength, Examples, lengths_of
from layerscope.training.folder import TrainingFolder, step_of
from layerscope.training.objectives import Objective
from layerscope.training.starting_model import PlainClassifier
from layerscope.training.trainer import AlignedTrainer
from layerscope.training.verb import SENTENCES, Settings

EVALUATIONS = 10
SHARE = 0.75
"""Samples evaluated over samples trained on, at most, where no interval is given: a step costs about three forwards of
its samples, so that evaluation takes about a fifth of the time."""
CUTS, CUT = (0.5, 0.75), 0.1
"""Shares of the steps after which "multistep" takes a tenth of the rate."""


@dataclass(frozen=True)
class Job:
    """A model to train, on what and how, as `asked`; `seen` are digests of the samples that it learns to classify."""

    name: str
    module: Any
    processor: Any
    train: Examples
    eval: Examples
    collator: Any
    settings: Settings
    asked: Asked
    seen: Digests | None


class _Trainer(AlignedTrainer):
    """The trainer of the command: its batches hold texts of like lengths, those of an evaluation little padding."""

    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        lengths = lengths_of(self.train_dataset)
        if lengths is None:
            return super()._get_train_sampler(train_dataset)
        return ByLength(self.train_dataset, lengths, self._train_batch_size)

    def _get_eval_sampler(self, eval_dataset: Any) -> Any:
        lengths = lengths_of(eval_dataset)
        if lengths is None:
            return super()._get_eval_sampler(eval_dataset)
        return np.argsort(-lengths, kind="stable").tolist()


class _Progress(TrainerCallback):  # type: ignore[misc]  # transformers is not typed
    """A bar with the loss, a line at each evaluation; the last step is evaluated and saved whatever the interval."""

    def __init__(
        self, reporter: Reporter, title: str, examples: Examples, stack: ExitStack
    ) -> None:
        self.reporter, self.title, self.examples, self.stack, self.loss = (
            reporter,
            title,
            examples,
            stack,
            "",
        )
        self.advance: Advance | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.is_world_process_zero:
            self.advance = self.stack.enter_context(
                self.reporter.bar(self.title, state.max_steps, "steps")
            )
            self.advance(state.global_step)

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        # from the state, which a checkpoint restores: a data loader that skips what it has seen
        # gives another epoch
        self.examples.epoch = int((state.epoch or 0) + 1e-6)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
        if self.advance is not None:
            self.advance(1, self.loss)
        if state.global_step >= state.max_steps:
            control.should_evaluate = control.should_save = True
        return control

    def on_log(
        self, args: Any, state: Any, control: Any, logs: Mapping[str, Any] | None = None, **_: Any
    ) -> None:
        if logs and "loss" in logs:
            self.loss = f"loss {float(logs['loss']):.3f}"

    def on_evaluate(
        self, args: Any, state: Any, control: Any, metrics: Mapping[str, float], **_: Any
    ) -> None:
        """Show loss, and the first, middle and last layer's score."""
        found = {key.removeprefix("eval_"): value for key, value in metrics.items()}
        words = [f"step {state.global_step:,}"]
        if "loss" in found:
            words.append(f"loss {found['loss']:.3f}")
        for name, form in (
            ("accuracy", "{:.1%}"),
            ("perplexity", "{:,.1f}"),
            ("spearman", "{:.3f}"),
        ):
            depth = sum(key.startswith(f"{name}_layer_") for key in found)
            layers = sorted({1, max(1, depth // 2), depth}) if depth and name in found else []
            scores = ", ".join(
                f"{form.format(found[f'{name}_layer_{k}'])} at layer {k}" for k in layers
            )
            words += [f"{name} {scores}"] if scores else []
        if "effective_depth" in found:
            words.append(f"effective depth {found['effective_depth']:g}")
        if state.is_world_process_zero:
            self.reporter.say(" · ".join(words))


def check_reports(name: str) -> None:
    """Raise `LayerscopeError` where a Trainer cannot report to that name, for it is unknown or not installed."""
    from transformers.integrations import get_available_reporting_integrations
    from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK

    OneOf(("none", "all", *INTEGRATION_TO_CALLBACK)).take("report_to", name)
    if name not in ("none", "all", *get_available_reporting_integrations()):
        raise LayerscopeError(f"report_to {name!r} is not installed: install it, or choose another")


def is_main() -> bool:
    """Return whether this process is the one that writes, of those that torchrun started."""
    return int(os.environ.get("RANK", "0")) == 0


def evaluations_of(chosen: Settings, steps: int, evaluated: int) -> tuple[int, bool]:
    """Return the steps between evaluations, as given or within `SHARE`, and whether there is one before the first."""
    if chosen.eval_every is not None:
        return chosen.eval_every, True
    trained = steps * chosen.batch_size * chosen.gradient_accumulation * launched()
    most = int(SHARE * trained / max(1, evaluated))
    return math.ceil(steps / min(EVALUATIONS, max(1, most - 1))), most > 1


def fit(job: Job, folder: TrainingFolder, reporter: Reporter) -> None:
    """Train, and write the model as a standard checkpoint into the folder."""
    if folder.finished:
        reporter.say(f"{folder.path} is finished: nothing is left to train")
        return
    checkpoint, chosen, steps = folder.last_checkpoint(), job.settings, job.settings.max_steps
    if steps is None:
        batches = math.ceil(len(job.train) / (chosen.batch_size * launched()))
        steps = math.ceil(chosen.epochs * max(1, math.ceil(batches / chosen.gradient_accumulation)))
    if checkpoint is not None:
        reporter.say(f"resuming from {checkpoint}")
    evaluated = len(job.eval)
    every, first = evaluations_of(chosen, steps, evaluated * (1 + (chosen.depth_on == "train")))
    reporter.say(
        f"every layer is evaluated on {count(evaluated, 'sample')} after every {count(every, 'step')}"
    )
    with without_bars(), ExitStack() as stack:
        progress = _Progress(reporter, job.name, job.train, stack)
        trainer = _trainer(job, folder, steps, every, first and checkpoint is None, progress)
        if (
            checkpoint is not None and step_of(checkpoint) >= steps
        ):  # the Trainer would take one more step
            trainer._load_from_checkpoint(str(checkpoint))
        else:
            trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
        heads = None
        if chosen.task != SENTENCES:
            heads = trainer.exit_loss.own_heads()
            trainer.exit_loss.detach()
        trainer.save_model(str(folder.path))
    if is_main():
        _finish(job, folder, heads)


def _finish(job: Job, folder: TrainingFolder, heads: ExitHeads | None) -> None:
    """Write what stands beside the weights, and delete the checkpoints of the way."""
    if isinstance(job.module, PlainClassifier):
        save_model(
            job.module.module, str(folder.path / "model.safetensors")
        )  # under the module's own names
    if heads is not None:
        heads.save(folder.path)
    if job.seen is not None:
        np.save(folder.path / TRAINED_ON, job.seen)
    (folder.path / "training_args.bin").unlink(
        missing_ok=True
    )  # a pickle of what training.json holds
    if not job.asked.keep_checkpoints:
        for old in folder.checkpoints.glob("checkpoint-*"):
            shutil.rmtree(old, ignore_errors=True)
        with suppress(OSError):  # what the Trainer reported beside them, as to TensorBoard, stays
            folder.checkpoints.rmdir()
    folder.write(finished=True)


def _trainer(
    job: Job, folder: TrainingFolder, steps: int, every: int, on_start: bool, progress: _Progress
) -> Any:
    from transformers import PrinterCallback, TrainingArguments as Arguments

    kind: Any = _Trainer
    chosen, more = job.settings, dict[str, Any]()
    depth_data = job.train.drawn(len(job.eval), chosen.seed) if chosen.depth_on == "train" else None
    own: dict[str, Any] = {"part": job.asked.part, "depth_data": depth_data}
    if chosen.task == SENTENCES:
        from sentence_transformers import SentenceTransformerTrainingArguments as Arguments

        from layerscope.training.sentence_trainer import SentenceTrainer

        more = (
            {"batch_sampler": "no_duplicates"} if job.train.labels is None else {}
        )  # each is the others' negative
        kind, own = SentenceTrainer, {"dims": chosen.dims}
    on_gpu = torch_device(LoadOptions(device=chosen.device)).type == "cuda"
    save = chosen.eval_every or math.ceil(steps / EVALUATIONS)
    objective = Objective(
        chosen.objective,
        chosen.schedule or "always",
        chosen.weights,
        chosen.beta,
        chosen.distillation,
        chosen.temperature,
        chosen.rotation,
        chosen.layer_dropout,
        from_scratch=job.asked.from_config,
    )
    multistep = chosen.scheduler == "multistep"
    warm = (
        "constant_with_warmup"
        if chosen.scheduler == "constant" and chosen.warmup
        else chosen.scheduler
    )
    args = Arguments(
        str(folder.checkpoints),
        max_steps=steps,
        per_device_train_batch_size=chosen.batch_size,
        per_device_eval_batch_size=chosen.batch_size,
        gradient_accumulation_steps=chosen.gradient_accumulation,
        learning_rate=chosen.learning_rate,
        weight_decay=chosen.weight_decay,
        warmup_steps=chosen.warmup,
        lr_scheduler_type="constant" if multistep else warm,
        eval_strategy="steps",
        eval_steps=every,
        eval_on_start=on_start,
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
        report_to=job.asked.report_to,
        **more,
    )
    trainer: Any = kind(
        model=job.module,
        objective=objective,
        layers=chosen.layers,
        history=folder.history,
        args=args,
        train_dataset=job.train,
        eval_dataset=job.eval,
        data_collator=job.collator,
        processing_class=job.processor,
        callbacks=[progress],
        **own,
    )
    trainer.remove_callback(PrinterCallback)
    if multistep:
        warmup = args.get_warmup_steps(steps)

        def rate(step: int) -> float:
            return float(
                min(1.0, (step + 1) / (warmup + 1))
                * CUT ** sum(step >= cut * steps for cut in CUTS)
            )

        trainer.create_optimizer()
        trainer.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(trainer.optimizer, rate)
    return trainer

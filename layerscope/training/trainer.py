"""A transformers Trainer whose steps ask every exit, and whose evaluations tell what each layer can."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import Trainer
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from layerscope.core.errors import LayerscopeError
from layerscope.models import LayeredModel, LoadOptions, Override, find_layers, load
from layerscope.models.inspection import made_up_samples
from layerscope.models.stack import SeveralWidths
from layerscope.training.exit_loss import ExitLoss
from layerscope.training.exits import Exits
from layerscope.training.guard import Guard, check_options
from layerscope.training.history import History, Rewinds, about_data, manifest
from layerscope.training.layer_evaluation import LayerEvaluation
from layerscope.training.objectives import Objective
from layerscope.training.resuming import load_renamed

EVALUATION = "Evaluation"
"""What the Trainer calls the loop of `evaluate`, and not that of `predict`."""


class AlignedTrainer(Trainer):  # type: ignore[misc]
    """`transformers.Trainer` with an objective over exits; everything else is the Trainer's.

    Every evaluation reads each layer 1 … L through the model's head (of "classifiers" each through its own), in the
    passes that make its own loss, and adds to its metrics `eval_accuracy` (of a language model `eval_perplexity`) and
    `eval_accuracy_layer_K`, `eval_cosine_layer_K` (to the last layer), `eval_saturation_layer`, `eval_effective_depth`
    and `eval_nc1`.

    Args:
        model: a model with a head: sequence, token, image or audio classification, causal or masked language modelling.
        args: the Trainer's, as all that follow up to `model_init` and all `others`: in its order, or by name.
        data_collator: see the Trainer.
        train_dataset: see the Trainer.
        eval_dataset: see the Trainer.
        processing_class: the tokenizer, image processor or feature extractor of the model.
        model_init: makes the model, in the place of `model`; called again at the start of each `train`.
        *others: the Trainer's, after `model_init` in its order.
        objective: the loss over the exits, or its name.
        layers: the exits; by default every layer from 1 on.
        part: which stack, where a model has several.
        history: a run folder for the scores of every layer at every evaluation, by step, which `open_run` and `report`
            read. With several evaluation sets, each has a folder of its own name in it.
        **options: the Trainer's own.

    Raises:
        LayerscopeError: for a model without a head, for a loss that is no cross-entropy, and for options that take the
            loss from elsewhere.

    Example:
        >>> from transformers import AutoModelForSequenceClassification, TrainingArguments
        >>> from layerscope.training import AlignedTrainer
        >>> model = AutoModelForSequenceClassification.from_pretrained("tiny-bert")
        >>> rows = [{"input_ids": [4, 5, 6, 7], "labels": 1}] * 4
        >>> trainer = AlignedTrainer(model, TrainingArguments("out", disable_tqdm=True), eval_dataset=rows)
        >>> trainer.predict(rows).metrics["test_accuracy_layer_3"]
        1.0

    """

    def __init__(
        self,
        model: Any = None,
        args: Any = None,
        data_collator: Any = None,
        train_dataset: Any = None,
        eval_dataset: Any = None,
        processing_class: Any = None,
        model_init: Any = None,
        *others: Any,
        objective: Objective | str = "aligned",
        layers: Sequence[int] | None = None,
        part: str | None = None,
        history: str | Path | None = None,
        **options: Any,
    ) -> None:
        self.objective = Objective(objective) if isinstance(objective, str) else objective  # type: ignore[arg-type]
        if (model is None) == (model_init is None):
            raise LayerscopeError("AlignedTrainer takes either a model or model_init: give one of them")
        self._found = (processing_class, part, layers)
        self.history: History | None = None
        self.guard: Guard | None = None
        if model is not None:
            self._attach(model)
        super().__init__(
            model, args, data_collator, train_dataset, eval_dataset, processing_class, model_init, *others, **options
        )
        check_options(self)
        layered = self.layered
        self.guard = Guard(self.exit_loss)
        self.add_callback(self.guard)
        self.model_accepts_loss_kwargs = True  # the exits' loss divides by them, whatever the model's own does
        if history is not None:
            told = self.layer_evaluation
            notes = [*layered.notes, *filter(None, [told.left_out])]
            self.history = History(history, manifest(layered, self.objective, told.language_model, self.args, notes))
            self.add_callback(Rewinds(self.history))
        self._modality = layered.encoder.modality

    def _attach(self, model: Any) -> None:
        """Find the exits of a model, and have its `forward` compute their loss."""
        processor, part, layers = self._found
        try:
            self.layered = layered_model(model, processor, part)
        except LayerscopeError as error:  # which names the argument of every other verb
            raise LayerscopeError(str(error).replace("processor=", "processing_class=")) from error
        inputs = probe(self.layered)
        self.exit_loss = ExitLoss(Exits(self.layered, inputs, layers), self.objective, inputs)
        self.layer_evaluation = LayerEvaluation(self.layered, self.exit_loss)
        if self.guard is not None:
            self.guard.exit_loss = self.exit_loss

    def call_model_init(self, trial: Any = None) -> Any:
        """Return what `model_init` makes, with its exits found."""
        model = super().call_model_init(trial)
        self._attach(model)
        return model

    def compute_loss(
        self,
        model: Any,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Any:
        """Return the loss of the objective in its steps, else the model's own."""
        self.exit_loss.on = bool(model.training and self.objective.counts_in(self.state.global_step + 1))
        try:
            found = super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        finally:
            self.exit_loss.on = False
        if model.training and self.guard is not None:
            self.guard.watch(found[0] if return_outputs else found, inputs)
        return found

    def train(self, resume_from_checkpoint: str | bool | None = None, *args: Any, **options: Any) -> Any:
        """Train as the Trainer does; raises `LayerscopeError` for a loss that is not finite or another objective."""
        assert self.guard is not None
        self.guard.resuming(resume_from_checkpoint, self.args.output_dir)
        return super().train(resume_from_checkpoint, *args, **options)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        super()._load_from_checkpoint(resume_from_checkpoint, model)
        load_renamed(self.model if model is None else model, Path(resume_from_checkpoint))

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        step = self.state.global_step
        folder = str(Path(self._get_output_dir(trial)) / f"{PREFIX_CHECKPOINT_DIR}-{step}")
        assert self.guard is not None
        self.guard.before_save(self.model, folder, step, self.args.should_save)
        super()._save_checkpoint(model, trial)

    def evaluation_loop(
        self,
        dataloader: Any,
        description: str,
        prediction_loss_only: bool | None = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
    ) -> Any:
        """Return the Trainer's own output, with the scores of every layer, from the same passes, in its metrics.

        Random generators are left as they were: how often a model is evaluated does not change its training.
        """
        with generators_kept(self.args.device), self.layer_evaluation.scoring(self.accelerator):
            output = super().evaluation_loop(
                dataloader, description, prediction_loss_only, ignore_keys, metric_key_prefix
            )
        for name, value in self.layer_evaluation.logged().items():
            output.metrics.setdefault(f"{metric_key_prefix}_{name}", value)  # what compute_metrics gave stays
        if self.history is not None and description == EVALUATION and self.layer_evaluation.rows:
            self._keep(self.history, dataloader.dataset, output.num_samples, metric_key_prefix)
        return output

    def _keep(self, history: History, dataset: Any, samples: int, prefix: str) -> None:
        """Write the last evaluation, in one process."""
        if self.is_world_process_zero():
            data = about_data(dataset, samples, self._modality)
            name = "" if prefix == "eval" else prefix.removeprefix("eval_")
            history.write(self.state.global_step, self.layer_evaluation.rows, data, name)


@contextmanager
def generators_kept(device: torch.device) -> Iterator[None]:
    """Within, whatever is drawn at random is drawn from copies of the generators."""
    python, array = random.getstate(), np.random.get_state()  # noqa: NPY002  that which others draw from
    kind, devices = (device.type, [device]) if device.type not in ("cpu", "mps") else ("cuda", [])
    with torch.random.fork_rng(devices, device_type=kind):
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(array)  # noqa: NPY002


def layered_model(model: Any, processor: Any, part: str | None) -> LayeredModel:
    """Return a model with its layers found by samples that are made up."""
    loaded = load(model, LoadOptions(), processor)
    modality, samples = made_up_samples(loaded)
    try:
        return find_layers(loaded, modality, samples, Override(part), max_length=None, prompt="")
    except SeveralWidths as several:
        raise LayerscopeError(f"{several.differ}: one head reads layers of one width") from several


@torch.no_grad()
def probe(model: LayeredModel) -> Any:
    """Return a small batch of made-up samples, on the model's device."""
    _, samples = made_up_samples(model.loaded)
    return model.encoder.batch(list(samples)[:2]).to(model.device)

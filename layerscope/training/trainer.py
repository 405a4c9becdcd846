"""A transformers Trainer whose steps train every exit, and whose evaluations score every layer."""

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel, Trainer

from layerscope.core import LayerscopeError
from layerscope.models import (
    Inputs,
    LayeredModel,
    LoadOptions,
    Override,
    find_layers,
    load,
    made_up_samples,
)
from layerscope.models.mean_head import standard_class
from layerscope.training.callbacks import Guard, History
from layerscope.training.examples import by_name
from layerscope.training.exit_loss import ExitLoss
from layerscope.training.exits import Exits
from layerscope.training.layer_scores import (
    SITE,
    empty_scores,
    logged,
    once,
    over_processes,
)
from layerscope.training.objectives import Objective


class AlignedTrainer(Trainer):  # type: ignore[misc]  # transformers is not typed
    """`transformers.Trainer` with an objective over exits; everything else is the Trainer's.

    Every evaluation reads each layer 1 … L through the model's head (with "classifiers" each
    through its own), in the passes that make its own loss, and adds to its metrics `eval_accuracy`
    (for a language model `eval_perplexity`) and `eval_accuracy_layer_K`, `eval_cosine_layer_K` (to
    the last layer), `eval_saturation_layer`, `eval_effective_depth` and `eval_nc1`.

    Args:
        model: a model with a head: sequence, token, image or audio classification, causal or masked
            language modelling.
        *args: the Trainer's own after the model, in its order: args, data_collator …
        objective: the loss over the exits, or its name.
        layers: the exits; by default every layer from 1 on.
        part: which stack, where a model has several.
        history: a run folder for the scores of every layer at every evaluation, by step, which
            `open_run` and `report` read; of one evaluation set.
        **options: the Trainer's own by name.

    Raises:
        LayerscopeError: for a model without a head, for a loss that is not a cross-entropy, and for
            options that take the loss from elsewhere.

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
        model: Any,
        *args: Any,
        objective: Objective | str = "aligned",
        layers: Sequence[int] | None = None,
        part: str | None = None,
        history: str | Path | None = None,
        **options: Any,
    ) -> None:
        if isinstance(objective, str):
            objective = Objective(objective)  # type: ignore[arg-type]  # which checks it
        self.objective = objective
        super().__init__(model, *args, **options)
        self._refuse_arguments()
        try:
            self.layered = layered_model(model, self.processing_class, part)
        except LayerscopeError as error:  # which names the argument of the other verbs
            raise LayerscopeError(
                str(error).replace("processor=", "processing_class=")
            ) from error
        inputs = probe(self.layered)
        exits = Exits(self.layered, inputs, layers)
        self.exit_loss = ExitLoss(exits, objective, inputs)
        self.guard = Guard(self.readings)
        self.add_callback(self.guard)
        self.history: History | None = None
        if history is not None:
            if isinstance(self.eval_dataset, dict):
                raise LayerscopeError(
                    "a history is of one evaluation set: leave it out, or give one data set"
                )
            self.history = History(
                history,
                self.layered,
                objective,
                self.args,
                SITE,
                language_model=self.exit_loss.language_model,
            )
            self.add_callback(self.history)
        # the exits' loss divides by the number of items, whatever the model's own does
        self.model_accepts_loss_kwargs = True

    def _refuse_arguments(self) -> None:
        """Raise where the Trainer's arguments take the loss from elsewhere, or leave the exits without a model."""
        for name, owner in (
            ("label_smoothing_factor", self.args),
            ("compute_loss_func", self),
        ):
            if getattr(owner, name):
                raise LayerscopeError(
                    f"{name} takes a loss of the last logits and ignores the exits: leave it out"
                )
        if self.args.n_gpu > 1:
            raise LayerscopeError(
                f"one process copies the model to {self.args.n_gpu} GPUs, and copies have no exits: start one process "
                f"for each, by torchrun --nproc_per_node {self.args.n_gpu}"
            )

    def compute_loss(
        self,
        model: Any,
        inputs: Any,
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Any:
        """Return the loss of the objective in its steps, else the model's own."""
        trains_exits = self.objective.trains_exits(self.state.global_step + 1)
        self.exit_loss.on = model.training and trains_exits
        try:
            loss = super().compute_loss(
                model, inputs, return_outputs, num_items_in_batch
            )
        finally:
            self.exit_loss.on = False
        if model.training:
            self.guard.see(loss[0] if return_outputs else loss, inputs)
        return loss

    def readings(self, model: Any, inputs: Any) -> Iterator[tuple[int, Tensor]]:
        """Yield the layer of each exit with what its head makes of a batch, whose labels are not read."""
        exits = self.exit_loss.exits
        inputs = {key: value for key, value in inputs.items() if key != "labels"}
        reads = exits(lambda: model(**inputs))
        for layer, read in zip(exits.layers, reads, strict=True):
            yield layer, self.exit_loss.head(read)

    def _load_from_checkpoint(
        self, resume_from_checkpoint: str, model: Any = None
    ) -> None:
        """Load the weights of a checkpoint, those too that transformers saved under the names of older releases.

        Its `from_pretrained` knows both names of a ViT's; its Trainer passes over the old ones
        without an error.
        """
        super()._load_from_checkpoint(resume_from_checkpoint, model)
        model = model or self.model
        checkpoint = Path(resume_from_checkpoint)
        whole = any(checkpoint.glob("model*.safetensors"))
        if isinstance(model, PreTrainedModel) and whole:
            loaded = standard_class(type(model)).from_pretrained(
                checkpoint, dtype="auto", local_files_only=True
            )
            model.load_state_dict(loaded.state_dict(), strict=False)

    def _issue_warnings_after_load(self, load_result: Any) -> None:
        """Say nothing of names of older releases, which `_load_from_checkpoint` reads after the Trainer."""

    def evaluation_loop(self, dataloader: Any, *args: Any, **options: Any) -> Any:
        """Return the Trainer's own output, with the scores of every layer, from the same passes, in its metrics."""
        prefix = options.get("metric_key_prefix", "eval")
        scores = empty_scores(self.exit_loss)
        self.exit_loss.score = lambda read, heads, labels: scores.update(
            read, heads, once(labels, self.accelerator)
        )
        try:
            with generators_kept(self.args.device):
                output = super().evaluation_loop(dataloader, *args, **options)
        finally:
            self.exit_loss.score = None
        rows = over_processes(scores, self.accelerator).compute()
        for name, value in logged(rows, scores.language_model).items():
            # what compute_metrics gave stays
            output.metrics.setdefault(f"{prefix}_{name}", value)
        writes = prefix == "eval" and self.is_world_process_zero()
        if self.history is not None and writes:
            data = getattr(dataloader.dataset, "name", None)
            self.history.add(self.state.global_step, rows, data, output.num_samples)
        return output


@contextmanager
def generators_kept(device: torch.device) -> Iterator[None]:
    """Within, what is random is drawn from copies: how often a model is evaluated does not change its training."""
    python = random.getstate()
    array = np.random.get_state()
    kind = device.type
    devices = [device]
    if kind in ("cpu", "mps"):
        kind = "cuda"
        devices = []
    with torch.random.fork_rng(devices, device_type=kind):
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(array)


def layered_model(model: Any, processor: Any, part: str | None) -> LayeredModel:
    """Return a model with its layers found by samples that are made up."""
    loaded = load(model, LoadOptions(), processor)
    return find_layers(loaded, *made_up_samples(loaded), Override(part))


@torch.no_grad()
def probe(model: LayeredModel) -> Inputs:
    """Return a small batch of made-up samples, on the model's device."""
    _, samples = made_up_samples(model.loaded)
    batch = model.encoder.batch(samples)
    return Inputs(by_name(batch.to(model.device)))

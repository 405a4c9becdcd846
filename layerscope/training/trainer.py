"""A transformers Trainer whose steps ask every exit, and whose evaluations tell what each layer can."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import Trainer

from layerscope.inspecting import made_up_samples
from layerscope.models import LayeredModel, LoadOptions, Override, find_layers, load
from layerscope.training.exit_loss import ExitLoss
from layerscope.training.exits import Exits
from layerscope.training.objectives import Objective


class AlignedTrainer(Trainer):  # type: ignore[misc]
    """`transformers.Trainer` with an objective over exits; everything else is the Trainer's.

    Args:
        model: a model with a head: sequence, token, image or audio classification, causal or masked language modelling.
        objective: what the exits are asked for, or its name.
        layers: the exits, None is every layer from 1 on.
        part: which stack, where a model has several.
        **options: the Trainer's own.

    Raises:
        LayerscopeError: for a model without a head, and for a loss that is no cross-entropy.

    """

    def __init__(
        self,
        model: Any,
        *,
        objective: Objective | str = "aligned",
        layers: Sequence[int] | None = None,
        part: str | None = None,
        **options: Any,
    ) -> None:
        self.objective = Objective(objective) if isinstance(objective, str) else objective  # type: ignore[arg-type]
        layered = layered_model(model, options.get("processing_class"), part)
        inputs = _probe(layered)
        self.exit_loss = ExitLoss(Exits(layered, inputs, layers), self.objective, inputs)
        super().__init__(model=model, **options)

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
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        finally:
            self.exit_loss.on = False


def layered_model(model: Any, processor: Any, part: str | None) -> LayeredModel:
    """Return a model with its layers found by samples that are made up."""
    modality, samples = made_up_samples(model)
    loaded = load(model, LoadOptions(), processor)
    return find_layers(loaded, modality, samples, Override(part), max_length=None, prompt="")


@torch.no_grad()
def _probe(model: LayeredModel) -> Any:
    _, samples = made_up_samples(model.module)
    return model.encoder.batch(list(samples)[:2]).to(model.device)

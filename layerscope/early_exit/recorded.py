"""What every layer says of each sample of a data set: all that thresholds, costs and curves are computed from."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from layerscope.early_exit.criteria import sureness, unchanged
from layerscope.models.forward import Inputs

if TYPE_CHECKING:
    from layerscope.early_exit.exit_model import ExitModel

Layers = NDArray[np.int64]
"""The layer at which each sample leaves, [N]."""


@dataclass(frozen=True)
class Recorded:
    """One full pass over N samples of a model with L layers.

    `scores` [N, L] is how sure layers 1 … L are (see `sureness`), `predictions` [N, L] what they predict, `lengths` [N]
    each sample's real positions (tokens, patches, frames), `labels` [N] the class numbers, where there are any.
    """

    criterion: str
    classes: int
    scores: NDArray[np.float64]
    predictions: NDArray[np.int64]
    lengths: NDArray[np.int64]
    labels: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.predictions)

    @property
    def depth(self) -> int:
        """L."""
        return int(self.predictions.shape[1])

    @cached_property
    def full(self) -> NDArray[np.int64]:
        """What the full model predicts, [N]."""
        return self.predictions[:, -1]

    def take(self, rows: NDArray[np.int64]) -> Recorded:
        """Return these samples alone."""
        labels = None if self.labels is None else self.labels[rows]
        parts = {name: getattr(self, name)[rows] for name in ("scores", "predictions", "lengths")}
        return replace(self, **parts, labels=labels)

    def scores_at(self, exits: Sequence[int]) -> NDArray[np.float64]:
        """Return what is compared with the threshold at these exits (layers 1 … L − 1), [N, E]."""
        columns = np.asarray(exits, dtype=np.int64) - 1
        if self.criterion == "patience":
            return unchanged(torch.from_numpy(self.predictions[:, columns])).numpy().astype(np.float64)
        return self.scores[:, columns]

    def leaves(self, exits: Sequence[int], threshold: float) -> Layers:
        """Return the layer at which each sample leaves: the first exit whose score reaches the threshold, else L."""
        sure = self.scores_at(exits) >= threshold
        sure = np.column_stack([sure, np.ones(len(self), dtype=bool)])  # the last layer keeps nobody
        layers: Layers = np.asarray([*exits, self.depth], dtype=np.int64)[sure.argmax(1)]
        return layers

    def predicted(self, layers: Layers) -> NDArray[np.int64]:
        """Return what is predicted of each sample where it leaves at its layer, [N]."""
        return self.predictions[np.arange(len(self)), layers - 1]

    def disagrees(self, layers: Layers) -> NDArray[np.bool_]:
        """Return where the prediction is not the full model's, [N]."""
        return np.not_equal(self.predicted(layers), self.full)

    def accuracy(self, layers: Layers) -> float:
        """Return the share predicted right where each sample leaves at its layer, NaN without labels."""
        return math.nan if self.labels is None else float(np.equal(self.predicted(layers), self.labels).mean())


def record(
    model: ExitModel,
    batches: Iterable[Inputs],
    labels: NDArray[np.int64] | None = None,
    advance: Callable[[int], None] = lambda rows: None,
) -> Recorded:
    """Return what every layer of a model says of each sample of some batches, by the model's criterion.

    `advance` is called with the rows of each batch. Raises `LayerscopeError` where a layer gives logits that are NaN.
    """
    parts = []
    for inputs in batches:
        parts.append(_batch(model, inputs.to(model.device)))
        advance(len(parts[-1][2]))
    scores, predictions, lengths = (np.concatenate(column) for column in zip(*parts, strict=True))
    return Recorded(model.criterion, model.classes, scores, predictions, lengths, labels)


def _batch(model: ExitModel, inputs: Inputs) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the scores [B, L], the predictions [B, L] and the real positions [B] of a batch."""
    scores: list[Tensor] = []
    predictions: list[Tensor] = []
    width = 1

    def keep(layer: int, logits: Tensor, rows: Tensor) -> Tensor:
        scores.append(sureness(logits, model.criterion, f"layer {layer}"))
        predictions.append(logits.argmax(-1).cpu())
        return torch.zeros(len(rows), dtype=torch.bool)

    def watch(event: str, rows: int, positions: int) -> None:
        nonlocal width
        width = positions if event == "front" else width

    outcome = model.run(inputs, range(1, model.depth), keep, watch)
    keep(model.depth, outcome.logits, outcome.layers)
    rows = len(outcome.logits)
    mask = model.layered.mask(inputs, torch.empty(rows, width, 0)) if width > 1 else None
    lengths = np.full(rows, width) if mask is None else last_real(mask).cpu().numpy()
    return torch.stack(scores, 1).numpy(), torch.stack(predictions, 1).numpy(), lengths


def last_real(mask: Tensor) -> Tensor:
    """Return the positions of each row of a mask [B, T] up to its last real one, [B]: padding between them stays."""
    return (mask.bool() * torch.arange(1, mask.shape[1] + 1, device=mask.device)).amax(1)

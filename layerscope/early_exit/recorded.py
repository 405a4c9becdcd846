"""What every layer says of each sample of a data set: all that thresholds, costs and curves are computed from."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from layerscope.early_exit.criteria import unchanged

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
        layers = np.asarray([*exits, self.depth], dtype=np.int64)
        sure = self.scores_at(exits) >= threshold
        return (
            layers[np.where(sure.any(1), sure.argmax(1), len(exits))] if len(exits) else np.full(len(self), layers[0])
        )

    def predicted(self, layers: Layers) -> NDArray[np.int64]:
        """Return what is predicted of each sample where it leaves at its layer, [N]."""
        return self.predictions[np.arange(len(self)), layers - 1]

    def disagrees(self, layers: Layers) -> NDArray[np.bool_]:
        """Return where the prediction is not the full model's, [N]."""
        return np.not_equal(self.predicted(layers), self.full)

    def accuracy(self, layers: Layers) -> float:
        """Return the share predicted right where each sample leaves at its layer, NaN without labels."""
        return math.nan if self.labels is None else float(np.equal(self.predicted(layers), self.labels).mean())

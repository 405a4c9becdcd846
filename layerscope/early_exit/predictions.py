"""How sure an exit is, and what every layer says of each sample: all that the rest is computed from."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from layerscope.core import LayerscopeError, Number

Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]
NEVER = math.inf
"""The threshold that no score reaches: every row runs through all layers."""
Layers = Numbers
"""The layer at which each sample leaves, [N]."""


def check_threshold(value: Any) -> float:
    """Return a threshold that a score can reach, or `NEVER`; raises `LayerscopeError` for another."""
    if value != NEVER and not Number(0, 1).fits(value):
        raise LayerscopeError(
            f"threshold is {value!r}: give a number from 0 to 1, or infinity for never"
        )
    return float(value)


def sureness(logits: Tensor, source: str = "an exit") -> Tensor:
    """Return how sure logits `[..., K]` of a `source` are: the probability of their likeliest class, float64 `[...]`.

    It is the one criterion: the pass over the data, the model in use and the clock all call it, and
    `calibration.threshold_path` takes its range, 1 / K … 1, for granted. A float32 softmax would be 1 for
    everything beyond 1 − 6e-8.
    """
    log_p = logits.detach().to("cpu", torch.float64).log_softmax(-1)
    if bool(log_p.isnan().any()):
        raise LayerscopeError(
            f"{source} gives logits that are NaN: check its weights and inputs"
        )
    return log_p.amax(-1).exp()


@dataclass(frozen=True)
class Recorded:
    """One full pass over N samples of a model with L layers.

    `scores` [N, L] is how sure layers 1 … L are (see `sureness`), `predictions` [N, L] what they
    predict, `labels` [N] the class numbers, where there are any.
    """

    classes: int
    scores: Floats
    predictions: Numbers
    labels: Numbers | None = None

    def __len__(self) -> int:
        return len(self.predictions)

    @property
    def depth(self) -> int:
        """L."""
        return int(self.predictions.shape[1])

    @cached_property
    def full(self) -> Numbers:
        """What the full model predicts, [N]."""
        return self.predictions[:, -1]

    @property
    def whole(self) -> Layers:
        """The layers at which samples leave where none leaves early, [N]."""
        return np.full(len(self), self.depth)

    def take(self, rows: Numbers) -> "Recorded":
        """Return these samples alone."""
        labels = self.labels
        if labels is not None:
            labels = labels[rows]
        predictions = self.predictions[rows]
        return Recorded(self.classes, self.scores[rows], predictions, labels)

    def scores_at(self, exits: Sequence[int]) -> Floats:
        """Return what is compared with the threshold at these exits (layers 1 … L − 1), [N, E]."""
        return self.scores[:, [layer - 1 for layer in exits]]

    def leaves(self, exits: Sequence[int], threshold: float) -> Layers:
        """Return the layer at which each sample leaves: the first exit whose score reaches the threshold, else L."""
        last = np.ones(len(self), dtype=bool)  # the last layer keeps nobody
        sure = np.column_stack([self.scores_at(exits) >= threshold, last])
        layers = np.asarray([*exits, self.depth], dtype=np.int64)
        first: Layers = layers[sure.argmax(1)]
        return first

    def predicted(self, layers: Layers) -> Numbers:
        """Return what is predicted of each sample where it leaves at its layer, [N]."""
        return self.predictions[np.arange(len(self)), layers - 1]

    def disagreement(self, layers: Layers) -> float:
        """Return the share predicted otherwise than by the full model where each sample leaves at its layer."""
        return float(np.not_equal(self.predicted(layers), self.full).mean())

    def accuracy(self, layers: Layers) -> float | None:
        """Return the share predicted right where each sample leaves at its layer, None without labels."""
        if self.labels is None:
            return None
        return float(np.equal(self.predicted(layers), self.labels).mean())


def last_real(mask: Tensor) -> Tensor:
    """Return the positions of each row of a mask [B, T] up to its last real one, [B]: padding between them stays."""
    numbers = torch.arange(1, mask.shape[1] + 1, device=mask.device)
    return (mask.bool() * numbers).amax(1)

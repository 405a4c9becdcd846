"""What metrics of predictions are computed from: what the model's own head reads from each layer.

The head is read at every layer of every sample, or of some tokens: n readings, of which the likeliest
prediction is kept, and the loss where the right answer is known. A metric takes all of them, and
gives one number for some layers, or for all.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import torch
from torch import Tensor

from layerscope.core import LayerscopeError
from layerscope.metrics.arrays import Array, Estimate
from layerscope.metrics.metric import How, Needs


@dataclass(frozen=True)
class Readings:
    """The top predictions `[L+1, n]` of layers 0..L, and what is known of the right ones.

    `target` is `[n]`, where the answers are known; `nll` `[L+1, n]`, nats of a language model's
    next tokens. Where some layers are missing, `layers` are the numbers of those that are there.
    """

    prediction: Tensor
    target: Tensor | None = None
    nll: Tensor | None = None
    layers: Sequence[int] = ()


def as_predictions(predictions: Array, labels: Array) -> tuple[Tensor, Tensor]:
    """Return predicted ids `[..., L]` and the right ones `[...]` as tensors.

    Raises `LayerscopeError` where they do not fit.
    """
    tops = torch.as_tensor(predictions)
    truth = torch.as_tensor(labels).to(tops.device)
    if tops.ndim < 1 or tops.shape[:-1] != truth.shape or truth.numel() == 0:
        shapes = (
            f"predictions has shape {tuple(tops.shape)} and labels {tuple(truth.shape)}"
        )
        raise LayerscopeError(
            f"{shapes}: give [..., layers] predictions and one label for each row"
        )
    return tops, truth


ByLayer: TypeAlias = Iterator[tuple[int, Estimate]]


@dataclass(frozen=True)
class FromReadings(How):
    """A metric of what the model's head reads from each layer."""

    needs: ClassVar[Needs] = "lens"
    compute: Callable[[Readings], ByLayer] | None = None
    """Yields the position of a layer and its value; None where a training measures it, and no run of `profile` does."""
    language_model: bool = False
    """Whether it is defined for the next token alone."""

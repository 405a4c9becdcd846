"""What metrics of predictions are computed from: what the model's own head reads from each layer.

The head is read at every layer of every sample, or of some tokens: n readings, of which the likeliest
prediction is kept, and the loss where the right answer is known. A metric takes all of them, and
gives one number for some layers, or for all.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from torch import Tensor

from layerscope.metrics.arrays import Estimate
from layerscope.metrics.metric import How


@dataclass(frozen=True)
class Readings:
    """The top predictions `[len(layers), n]` of some layers, and what is known of the right ones.

    `target` is `[n]`, where the answers are known; `nll` has the shape of the predictions, nats of
    a language model's next tokens.
    """

    prediction: Tensor
    target: Tensor | None
    nll: Tensor | None
    layers: Sequence[int]


ByLayer = Iterator[tuple[int, Estimate]]


@dataclass(frozen=True)
class FromReadings(How):
    """A metric of what the model's head reads from each layer."""

    needs = "lens"
    compute: Callable[[Readings], ByLayer] | None = None
    """Yields the position of a layer and its value; None where a training measures it, and no run of `profile` does."""
    language_model: bool = False
    """Whether it is defined for the next token alone."""

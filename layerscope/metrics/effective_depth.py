from typing import Any

import torch
from torch import Tensor

from layerscope.core import LayerscopeError
from layerscope.metrics.arrays import Array, as_finite64, check_choice
from layerscope.metrics.metric import Metric
from layerscope.metrics.readings import FromReadings

_LAST_BITS = 1e-7  # 0.9 in float32 is less than 1 - 0.1


def within(loss: Any, most: float) -> Any:
    """Return whether a loss, or each of several, is at most so large, whatever its last bits: 0.95 - 0.94 is 0.01."""
    return loss <= most + _LAST_BITS


def effective_depth(
    accuracies: Array, epsilon: float, relative_to: str | None = None
) -> int | Tensor:
    """Return the smallest layer, from 1 on, that is accurate enough; L where none is.

    `accuracies` is `[..., L]`, of layers 1 ... L, as shares 0 ... 1. Enough is 1 - `epsilon`, or
    the accuracy of the last or best layer less `epsilon`. An integer, or an integer tensor `[...]`.
    Raises `LayerscopeError` for an epsilon outside 0 ... 1.

    Source: Jiang, Zhou, Zhu 2025, Tracing Representation Progression, definition 3.1.

    >>> effective_depth(np.array([0.50, 0.82, 0.90]), epsilon=0.1, relative_to="last")
    2
    """
    if not 0 <= epsilon <= 1:
        raise LayerscopeError(f"epsilon={epsilon}: give a share from 0 to 1")
    accuracy = as_finite64(accuracies, "accuracies", 1)
    if relative_to is not None:
        check_choice(relative_to, "relative_to", ("last", "best"))
    aims = {
        None: torch.ones_like(accuracy[..., -1:]),
        "last": accuracy[..., -1:],
        "best": accuracy.amax(-1, keepdim=True),
    }
    enough: Tensor = within(aims[relative_to] - accuracy, epsilon)
    enough[..., -1] = True  # where no layer is accurate enough, the last one is taken
    depth = enough.int().argmax(-1) + 1
    return int(depth) if depth.ndim == 0 else depth


EFFECTIVE_DEPTH = Metric(
    effective_depth,
    FromReadings(),
    reading="first layer that is accurate enough",
    meaning="Smallest layer whose accuracy through the head is within one point of the last layer's (definition 3.1: "
    "of 100 %); from 1 to the last layer.",
    direction="Low: later layers add no accuracy, which is also true before anything is learnt.",
    curve=False,
)

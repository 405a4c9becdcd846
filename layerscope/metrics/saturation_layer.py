import torch
from torch import Tensor

from layerscope.core.errors import LayerscopeError
from layerscope.metrics.arrays import Array


def saturation_layer(predictions: Array, first_layer: int = 1) -> Tensor:
    """Return the smallest layer from which the top prediction never changes again.

    `predictions` is `[..., L]`, one column for each of L consecutive layers from `first_layer`; the result
    `[...]` is an integer tensor with values first_layer ... first_layer + L - 1. A layer that agrees with
    the last one before changing its mind does not count. Raises `LayerscopeError` where there is no column.
    Source: Tracing Representation Progression, section 2.2.
    """
    tops = torch.as_tensor(predictions)
    if tops.ndim < 1 or tops.shape[-1] == 0:
        raise LayerscopeError(f"predictions has shape {tuple(tops.shape)}: give at least one layer's column")
    differs = tops != tops[..., -1:]
    after_last_change = differs * torch.arange(1, tops.shape[-1] + 1, device=tops.device)
    return after_last_change.amax(-1) + first_layer

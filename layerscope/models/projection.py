"""A sample's vector in the space that two towers share, from the states of any layer of one of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from layerscope.models.forward import Inputs, fitted, forward
from layerscope.models.lens import bypassed, one_row
from layerscope.models.stack import Stack


@dataclass(frozen=True)
class Projection:
    """The model's own code after the last block of a tower: norm, pooling, projection; fed with any layer's states."""

    module: nn.Module
    stack: Stack
    modality: str
    width: int = 0

    def vectors(self, states: Tensor, inputs: Inputs) -> Tensor:
        """Return the float32 vectors [B, P] of the states [B, T, D] of one layer.

        Samples beside padding go one by one: some towers pool the last position, whatever stands there.
        """
        if inputs.mask is None or bool(inputs.mask.all()):
            return self._run(states, inputs)
        rows = [one_row(inputs, i) for i in range(len(states))]
        lengths = inputs.mask.sum(1).tolist()
        return torch.cat([self._run(s[None, :n], r) for s, r, n in zip(states, rows, lengths, strict=True)])

    def _run(self, states: Tensor, inputs: Inputs) -> Tensor:
        with bypassed(self.module, self.stack, states):
            found = embedded(self.module, self.modality, inputs)
        if found is None:
            raise RuntimeError("the model gave no vector of a sample")
        return found.float()


@torch.inference_mode()
def embedded(module: nn.Module, modality: str, inputs: Inputs) -> Tensor | None:
    """Return the vectors [B, P] in which a model compares its two modalities, None where it has none.

    They are what its own `get_text_features` (or of images, or of audio) gives, or the field `text_embeds` of its
    output; not scaled to unit length.
    """
    features: Callable[..., Any] | None = getattr(module, f"get_{modality}_features", None)
    if features is not None:
        known = inspect.signature(features).parameters
        output = features(**{k: fitted(module, v) for k, v in inputs.named.items() if k in known})
        found = getattr(output, "pooler_output", output)
    else:
        found = getattr(forward(module, inputs), f"{modality}_embeds", None)
    return found if isinstance(found, Tensor) and found.ndim == 2 else None


@torch.inference_mode()
def find_projection(module: nn.Module, stack: Stack, modality: str, inputs: Inputs, last: Tensor) -> Projection | None:
    """Return the projection of a tower, or None where the model has none, or where it does not read these states.

    Args:
        module: the whole model.
        stack: the blocks of the tower.
        modality: what the tower reads.
        inputs: a probe batch of one sample.
        last: raw states of layer L on it, [1, T, D]: the projection must give the model's own vectors on them.

    """
    try:
        own = embedded(module, modality, inputs)
        if own is None:
            return None
        projection = Projection(module, stack, modality, own.shape[-1])
        mine, other = (projection.vectors(states, inputs) for states in (last, last.flip(-1)))
    except Exception:  # a model that takes other inputs too fails in its own way
        return None
    tolerance = 1e-4 if own.dtype == torch.float32 else 2e-2
    agrees = torch.allclose(mine, own.float(), rtol=tolerance, atol=1e-4)
    return projection if agrees and not torch.equal(mine, other) else None

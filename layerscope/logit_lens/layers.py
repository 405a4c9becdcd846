"""Every layer of one sample through the model's own head: the likeliest predictions, and nothing else is kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from layerscope.core.errors import LayerscopeError
from layerscope.models import LayeredModel
from layerscope.models.forward import Inputs
from layerscope.models.lens import CHUNK

WHOLE = 1 << 26
"""Logits of a sample up to which it is read in one go, as the model's own forward does: to the bit the same."""


@dataclass(frozen=True)
class Tops:
    """The `ids` [L+1, P, k] of the likeliest predictions at P positions, best first, and their `probabilities`."""

    ids: NDArray[np.int64]
    probabilities: NDArray[np.float32]


@torch.inference_mode()
def read_layers(model: LayeredModel, inputs: Inputs, positions: Sequence[int] | None, top: int) -> Tops:
    """Return the `top` predictions of layers 0 … L for a batch of one sample.

    Args:
        model: with a lens.
        inputs: one sample, without padding, on the model's device.
        positions: of the tokens that are read; None is all, and of a classifier the sample.
        top: predictions kept, at most as many as there are classes.

    Raises:
        LayerscopeError: where a layer's logits are not finite.

    """
    states: list[Tensor] = []
    model.run(inputs, lambda _, site, tokens: states.append(tokens.clone()) if site == "raw" else None)
    inputs = replace(inputs, mask=model.mask(inputs, states[0]))
    layers = [_tops(model, state, inputs, positions, top, layer) for layer, state in enumerate(states)]
    ids, logs = (torch.stack(parts).cpu() for parts in zip(*layers, strict=True))
    return Tops(ids.numpy(), logs.exp().numpy())


def _tops(
    model: LayeredModel, state: Tensor, inputs: Inputs, positions: Sequence[int] | None, top: int, layer: int
) -> tuple[Tensor, Tensor]:
    """Return ids and log-probabilities [P, k] of one layer."""
    ids, logs = [], []
    for logits in _logits(model, state, inputs, positions):
        total = logits.logsumexp(-1, keepdim=True)
        if not bool(torch.isfinite(total).all()):
            raise LayerscopeError(
                f"the head of {model.loaded.name} gives NaN or infinity on layer {layer}: try `dtype='float32'`"
            )
        best = logits.topk(top, dim=-1)
        ids.append(best.indices)
        logs.append(best.values - total)
    return torch.cat(ids), torch.cat(logs)


def _logits(model: LayeredModel, state: Tensor, inputs: Inputs, positions: Sequence[int] | None) -> Iterator[Tensor]:
    """Yield logits [n, K] in order, a chunk of rows at a time."""
    lens = model.lens
    assert lens is not None
    if lens.kind == "pooled":
        yield lens.sample_logits(state, inputs)
        return
    chosen = torch.arange(state.shape[1]) if positions is None else torch.tensor(positions)
    chosen = chosen.to(state.device)
    if state.shape[1] * lens.classes > WHOLE:
        yield from lens.token_logits(state[0, chosen], inputs)
        return
    yield from torch.split(lens.sequence_logits(state, inputs)[0, chosen], max(1, CHUNK // lens.classes))

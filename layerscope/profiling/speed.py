"""How long a forward takes up to each layer, measured."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence

import torch

from layerscope.models import LayeredModel
from layerscope.models.capture import evaluating
from layerscope.models.forward import Inputs


def milliseconds_to_layers(
    model: LayeredModel, batches: Sequence[Inputs], layers: Sequence[int], repeats: int = 5
) -> dict[int, float]:
    """Return the milliseconds per batch of a forward that ends after each of these layers.

    Layers take turns within every repeat, so that a busy machine slows all of them; each figure is the median over
    repeats of the sum over the batches, divided by their number.
    """

    def once(layer: int) -> float:
        start = time.perf_counter()
        for inputs in batches:
            model.run(inputs, lambda *_: None, until=layer)
        if model.device.type == "cuda":
            torch.cuda.synchronize()
        return (time.perf_counter() - start) * 1e3 / len(batches)

    with evaluating(model.module):
        once(max(layers))
        times = [{layer: once(layer) for layer in layers} for _ in range(repeats)]
    return {layer: statistics.median(t[layer] for t in times) for layer in layers}

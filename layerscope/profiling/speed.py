"""How long a forward takes up to each layer, measured."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from layerscope.core.stopwatch import Stopwatch
from layerscope.models import LayeredModel
from layerscope.models.capture import evaluating
from layerscope.models.forward import Inputs


def milliseconds_to_layers(
    model: LayeredModel, batches: Sequence[Inputs], layers: Sequence[int], repeats: int = 5
) -> dict[int, float]:
    """Return the milliseconds per batch of a forward that ends after each of these layers, medians over repeats."""

    def once(layer: int) -> None:
        for inputs in batches:
            model.run(inputs, lambda *_: None, until=layer)

    with evaluating(model.module):
        times = Stopwatch(model.device).medians([partial(once, layer) for layer in layers], repeats)
    return {layer: float(1e3 * seconds / len(batches)) for layer, seconds in zip(layers, times, strict=True)}

"""What every depth of a model costs beside the full one, without writing any."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from layerscope.truncation.depth import depth_of
from layerscope.truncation.source import Source
from layerscope.truncation.speed import megabytes, parameters, workload


@dataclass(frozen=True)
class Cost:
    """One depth: weights, their megabytes in the checkpoint's dtype, a sample's share of a forward, × faster."""

    parameters: int
    megabytes: float
    milliseconds: float
    speedup: float


@dataclass(frozen=True)
class Costs:
    """The full model and its depths by their last layer; `measured` says on what."""

    full: Cost
    layers: dict[int, Cost]
    measured: str


def costs_by_depth(source: Source, layers: Sequence[int]) -> Costs:
    """Return what a model costs that ends at each of these layers, 1 … L, their speeds measured in turns with its own.

    Raises `LayerscopeError` where no standard checkpoint of another depth can be made of the model.
    """
    depth, deepest = depth_of(source.model, source.samples), source.model.stack.depth
    models = {layer: depth.build(source.module, layer) for layer in dict.fromkeys((*layers, deepest))}
    work = workload(source)
    times = dict(zip(models, work.milliseconds([*models.values()]), strict=True))
    found = {
        layer: Cost(parameters(model), megabytes(model, source.dtype), times[layer], times[deepest] / times[layer])
        for layer, model in models.items()
    }
    return Costs(found[deepest], {layer: found[layer] for layer in layers}, work.measured())

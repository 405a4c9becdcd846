"""What every depth of a model costs beside the full one, without writing any."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from layerscope.models.capture import evaluating
from layerscope.truncation.agreement import expected_at
from layerscope.truncation.depth import find_depth
from layerscope.truncation.figures import called, megabytes, told
from layerscope.truncation.source import Source
from layerscope.truncation.speed import milliseconds, parameters, plain_run, workload


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
    module, deepest = source.module, source.model.stack.depth
    shallower = [layer for layer in layers if layer < deepest]
    probe = max(1, deepest // 2)
    depth = find_depth(module, source.model.stack, expected_at(source.model, probe, source.samples))
    models = [depth.build(module, layer) for layer in (*shallower, deepest)]
    work = workload(source)
    with evaluating(module):
        runs = [plain_run(called(model, source), work) for model in models]
        times = milliseconds(runs, work.samples, source.model.device)
    found = {
        layer: Cost(parameters(model), megabytes(model, source.dtype), took, times[-1] / took)
        for layer, model, took in zip((*shallower, deepest), models, times, strict=True)
    }
    full = found[deepest]
    return Costs(full, {layer: found[layer] for layer in layers}, told(source, work))

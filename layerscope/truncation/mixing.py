"""A mix of layers as a model: by sentence-transformers' own WeightedLayerPooling, or as a part of an ONNX file."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from layerscope.core import LayerscopeError
from layerscope.models import Inputs, Stack, evaluating
from layerscope.models.capture import capture
from layerscope.models.pooling import served

Weights = dict[int, float]
"""The share of each layer in a mix; of sum 1."""
GIVE = "give layers, such as 3,6, or weights with them, as in 3=0.4,6=0.6"


def mix_of(mix: Mapping[Any, Any], depth: int) -> Weights:
    """Return the weights of layers, of sum 1; raises `LayerscopeError` for what no mix of a model can be made of."""
    weights: Weights = {}
    for name, value in mix.items():
        try:
            layer = int(name)
            weight = float(value)
        except (TypeError, ValueError):
            raise LayerscopeError(
                f"mix has the layer {name!r} with the weight {value!r}: {GIVE}"
            ) from None
        if not 0 <= layer <= depth:
            raise LayerscopeError(
                f"layer {layer} of the mix does not exist: this model has layers 0..{depth}"
            )
        if not (math.isfinite(weight) and weight >= 0):
            raise LayerscopeError(
                f"the weight of layer {layer} in the mix is {weight:g}: give a number of at least 0"
            )
        if weight:
            weights[layer] = weight
    if len(weights) < 2:
        raise LayerscopeError(
            f"a mix needs two layers or more with a weight that is not 0: {GIVE}"
        )
    total = math.fsum(weights.values())
    return {layer: weights[layer] / total for layer in sorted(weights)}


def mix_in_words(weights: Weights) -> str:
    """Return the layers of a mix with their weights: of 3 and 6 `layers 3 (0.4) and 6 (0.6)`."""
    *most, last = (f"{layer} ({weight:.3g})" for layer, weight in weights.items())
    return f"layers {', '.join(most)} and {last}"


class MixedLayers(nn.Module):
    """A model whose output is a weighted sum of layers' states, after its final norm, as `evaluate` mixes them."""

    def __init__(self, module: nn.Module, stack: Stack, weights: Weights) -> None:
        super().__init__()
        self.module = module
        self.stack = stack
        self.weights = weights
        self.site = "raw"
        if stack.norm is not None:
            self.site = "normed"

    def forward(self, **named: Tensor) -> dict[str, Tensor]:
        """Return the mixed states [B, T, D]."""
        parts: list[Tensor] = []

        def visit(layer: int, site: str, tokens: Tensor) -> None:
            if site == self.site and layer in self.weights:
                parts.append(self.weights[layer] * tokens)

        # an export cannot follow the exception that ends a forward early
        capture(
            self.module, self.stack, Inputs(named), visit, until=self.stack.depth + 1
        )
        return {"last_hidden_state": sum(parts[1:], parts[0])}


@torch.inference_mode()
def vectors_of(
    full: MixedLayers, batches: Iterable[Inputs], after: Iterable[nn.Module]
) -> Tensor:
    """Return the vectors [N, D] of a mix of the full model, each sample alone, as the modules `after` it make them."""
    vectors = []
    with evaluating(full):
        for inputs in batches:
            states = full(**inputs.named)["last_hidden_state"]
            mask = torch.ones_like(states[..., 0]).long()
            vectors.append(served(after, states, mask).float().cpu())
    return torch.cat(vectors)


def layer_pooling(built: Any, width: int, layer: int, weights: Weights) -> nn.Module:
    """Return the module that mixes the layers of a transformer that ends at `layer`, which is made to show them."""
    from sentence_transformers.models import WeightedLayerPooling

    built.config.output_hidden_states = True
    start = min(weights)
    layers = range(start, layer + 1)
    layer_weights = torch.tensor([weights.get(i, 0.0) for i in layers])
    pooling: nn.Module = WeightedLayerPooling(
        width,
        num_hidden_layers=layer,
        layer_start=start,
        layer_weights=nn.Parameter(layer_weights, requires_grad=False),
    )
    return pooling

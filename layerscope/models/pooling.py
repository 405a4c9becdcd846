"""A sample's vectors from the states of its tokens: pooled, or in the space that two towers share."""

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from layerscope.core import LayerscopeError, choices
from layerscope.models.forward import Inputs, fitted, forward
from layerscope.models.lens import bypassed, reads_alike, rows_of
from layerscope.models.stack import Stack

POOLINGS = ("mean", "cls", "last", "first")


@dataclass(frozen=True)
class Vectors:
    """Which vectors of a sample a run keeps: the `poolings` asked for, and for similarities those in `pairs` too.

    Layers are compared by the token that the model's head reads; where every token of a causal
    model has its own prediction, by one seeded "position" a sample.
    """

    poolings: tuple[str, ...]
    pairs: tuple[str, ...] = ()


def parse(pooling: str) -> tuple[str, ...]:
    """Return the poolings named in a comma-separated option."""
    names = tuple(dict.fromkeys(map(str.strip, pooling.split(","))))
    for name in names:
        if name not in POOLINGS:
            raise LayerscopeError(
                f"pooling {name!r} does not exist{choices(name, POOLINGS, 'choose auto or some of')}"
            )
    return names


def served(modules: Iterable[Any], states: Tensor, mask: Tensor | None) -> Tensor:
    """Return the vectors [B, D] that the modules after a SentenceTransformer's first make of states [B, T, D].

    Those of a SparseEncoder are made of logits [B, T, K].
    """
    features: Any = {"token_embeddings": states, "attention_mask": mask}
    for module in modules:
        features = module(features)
    vectors: Tensor = features["sentence_embedding"]
    return vectors


def pool(
    tokens: Tensor, mask: Tensor | None, pooling: str, positions: Tensor | None = None
) -> Tensor:
    """Return one float32 vector per sample, [B, D], of states [B, T, D], or [B, D] where a sample is a vector already.

    `mask` [B, T] marks real positions, a prefix of each row (None: all are real); `pooling` is
    "mean", "cls" or "first" (position 0), "last" (the last real token), or "position": that in
    `positions` [B].
    """
    if tokens.ndim == 2:
        # a block may change its input in place after it was seen
        return tokens.to(torch.float32, copy=True)
    if pooling in ("cls", "first"):
        return tokens[:, 0].to(torch.float32, copy=True)
    if pooling != "mean":
        if mask is None:
            mask = torch.ones(tokens.shape[:2], device=tokens.device)
        if pooling == "last":
            positions = mask.sum(1).long() - 1
        rows = torch.arange(len(tokens), device=tokens.device)
        return tokens[rows, positions].float()
    tokens = tokens.float()
    if mask is None:
        return tokens.mean(1)
    weights = mask.to(tokens.dtype)
    # a matrix product leaves a masked NaN in the sum, so padded states are cut out before it
    if not bool(mask.all()):
        tokens = tokens.masked_fill(~mask.bool().unsqueeze(-1), 0.0)
    return torch.einsum("bt,btd->bd", weights, tokens) / weights.sum(1, keepdim=True)


@dataclass(frozen=True)
class Projection:
    """The model's own code after the last block of a tower: norm, pooling, projection; fed with any layer's states.

    `width` is P, that of the shared space.
    """

    module: nn.Module
    stack: Stack
    modality: str
    width: int

    def vectors(self, states: Tensor, inputs: Inputs) -> Tensor:
        """Return the float32 vectors [B, P] of the states [B, T, D] of one layer."""
        return self.layers(states[None], inputs)[0]

    def layers(self, states: Tensor, inputs: Inputs) -> Tensor:
        """Return the float32 vectors [K, B, P] of the states [K, B, T, D] of some layers."""
        layers, samples, most = states.shape[:3]
        lengths = torch.full((samples,), most, device=states.device)
        if inputs.mask is not None:
            lengths = inputs.mask.sum(1)
        projected = torch.empty(layers, samples, self.width, device=states.device)
        # without padding: some towers pool the last position, whatever is there
        for length in sorted(set(lengths.tolist())):
            rows = (lengths == length).nonzero().flatten()
            alike = rows_of(inputs, rows.repeat(layers))
            real = states[:, rows, :length].flatten(0, 1)
            with bypassed(self.module, self.stack, real):
                vectors = _embedded(self.module, self.modality, alike)
            if vectors is None:
                raise RuntimeError("the model gave no vector of a sample")
            by_layer = vectors.float().view(layers, len(rows), -1)
            projected[:, rows] = by_layer
        return projected


@torch.inference_mode()
def _embedded(module: nn.Module, modality: str, inputs: Inputs) -> Tensor | None:
    """Return the vectors [B, P], not of unit length, in which a model compares its two modalities, None of others."""
    features: Callable[..., Any] | None = getattr(
        module, f"get_{modality}_features", None
    )
    if features is None:
        vectors = getattr(forward(module, inputs), f"{modality}_embeds", None)
    else:
        names = inspect.signature(features).parameters.keys() & inputs.named
        named = {name: fitted(module, inputs.named[name]) for name in names}
        output = features(**named)
        vectors = getattr(output, "pooler_output", output)
    if isinstance(vectors, Tensor) and vectors.ndim == 2:
        return vectors
    return None


@torch.inference_mode()
def find_projection(
    module: nn.Module, stack: Stack, modality: str, inputs: Inputs, last: Tensor
) -> Projection | None:
    """Return a tower's projection, None where it does not give the model's own vectors on the raw states of layer L."""
    try:
        vectors = _embedded(module, modality, inputs)
        if vectors is None:
            return None
        projection = Projection(module, stack, modality, vectors.shape[-1])
        if reads_alike(partial(projection.vectors, inputs=inputs), last, vectors):
            return projection
    except Exception:  # a model that takes other inputs too fails in its own way
        return None
    return None

"""One vector per sample from the states of its tokens, by attention mask only."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from layerscope.core.errors import LayerscopeError, choices

POOLINGS = ("mean", "cls", "last", "first")


@dataclass(frozen=True)
class Vectors:
    """Which vectors of a sample a run keeps: the `poolings` asked for, and for similarities those in `pairs` too.

    Layers are compared by the token that the model's head reads; where every token of a causal model has its own
    prediction, by one seeded "position" a sample.
    """

    poolings: tuple[str, ...]
    pairs: tuple[str, ...] = ()


def parse(pooling: str) -> tuple[str, ...]:
    """Return the poolings named in a comma-separated option."""
    names = tuple(dict.fromkeys(name.strip() for name in pooling.split(",") if name.strip()))
    if not names:
        raise LayerscopeError(f"pooling {pooling!r} names none: choose auto or some of {', '.join(POOLINGS)}")
    for name in names:
        if name not in POOLINGS:
            raise LayerscopeError(f"pooling {name!r} does not exist{choices(name, POOLINGS, 'choose auto or some of')}")
    return names


def pool(tokens: Tensor, mask: Tensor | None, pooling: str, positions: Tensor | None = None) -> Tensor:
    """Return one float32 vector per sample, [B, D].

    Args:
        tokens: states [B, T, D], or [B, D] where a sample is one vector already.
        mask: real positions [B, T], a prefix of each row; None where all are real.
        pooling: "mean", "cls" or "first" (position 0), "last" (the last real token), or "position".
        positions: for "position", the index [B] to take from each sample.

    """
    if tokens.ndim == 2:
        return tokens.to(torch.float32, copy=True)  # a block may change its input in place after it was seen
    if pooling == "mean":
        return _mean(tokens.float(), mask)
    rows = torch.arange(len(tokens), device=tokens.device)
    if pooling in ("cls", "first"):
        return tokens[:, 0].to(torch.float32, copy=True)
    if pooling == "last":
        last = tokens.shape[1] - 1 if mask is None else mask.sum(1).long() - 1
        return tokens[rows, last].float()
    if pooling == "position" and positions is not None:
        return tokens[rows, positions].float()
    raise LayerscopeError(f"pooling {pooling!r} does not exist{choices(pooling, POOLINGS)}")


def _mean(tokens: Tensor, mask: Tensor | None) -> Tensor:
    if mask is None:
        return tokens.mean(1)
    weights = mask.to(tokens.dtype)
    # a matrix product leaves a masked NaN in the sum, so padded states are cut out before it
    kept = tokens.masked_fill(~mask.bool().unsqueeze(-1), 0.0) if not bool(mask.all()) else tokens
    return torch.einsum("bt,btd->bd", weights, kept) / weights.sum(1, keepdim=True)

from dataclasses import dataclass

import torch
from torch import Tensor

from layerscope.metrics.arrays import Array, as_tensor, real_mask

SINK = 10.0
"""A token is a sink where its norm is more than this many times its sample's median."""


@dataclass(frozen=True)
class Norms:
    """Norms of a sample's real tokens, each a tensor `[...]`; NaN for a sample with none or a non-finite token.

    `mean`, `median` (of an even number the mean of the middle two) and `maximum` are Euclidean norms, `sink_share`
    is the share of tokens whose norm is more than 10 times the median, 0 ... 1.
    """

    mean: Tensor
    median: Tensor
    maximum: Tensor
    sink_share: Tensor


def norms(tokens: Array, mask: Array | None = None) -> Norms:
    """Return mean, median and largest norm of each sample's tokens, and their share of sinks.

    `tokens` is `[..., T, D]`, `mask` `[..., T]` marks real tokens (None: all) and broadcasts over leading
    dimensions; values `[...]` are in float32 for inputs up to float32. Raises `LayerscopeError` for shapes
    that do not fit.

    Source: Sun et al. 2024, Massive Activations in Large Language Models (the sinks).
    """
    states = as_tensor(tokens, "tokens", 2)
    real = real_mask(states, mask)
    return summary(torch.linalg.vector_norm(states, dim=-1), real)


def summary(lengths: Tensor, real: Tensor) -> Norms:
    """Return `norms` of token norms `[..., T]`, of which `real` `[..., T]` are tokens."""
    count = real.sum(-1)
    kept = lengths.masked_fill(~real, 0.0)
    mean = kept.sum(-1) / count  # 0 / 0 is the NaN of a sample without tokens
    sinks = is_sink(lengths, real).sum(-1).to(mean.dtype) / count
    parts = (mean, median(lengths, real), kept.amax(-1), sinks)
    return Norms(*(part.masked_fill(~torch.isfinite(mean), torch.nan) for part in parts))


def is_sink(lengths: Tensor, real: Tensor) -> Tensor:
    """Return which tokens `[..., T]` are sinks, from their norms and which are real."""
    found: Tensor = real & (lengths > SINK * median(lengths, real)[..., None])
    return found


def median(lengths: Tensor, real: Tensor) -> Tensor:
    """Return the median `[...]` of the real ones of `[..., T]`, NaN where there are none."""
    count = real.sum(-1, keepdim=True)
    ordered = lengths.masked_fill(~real, torch.inf).sort(-1).values
    middle = [ordered.gather(-1, at.clamp(min=0)) for at in ((count - 1) // 2, count // 2)]
    found: Tensor = ((middle[0] + middle[1]) / 2).masked_fill(count == 0, torch.nan)
    return found.squeeze(-1)

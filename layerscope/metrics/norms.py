from dataclasses import dataclass

import torch
from torch import Tensor

from layerscope.metrics.arrays import Array
from layerscope.metrics.factors import FromTokens, Tokens
from layerscope.metrics.metric import Metric


@dataclass(frozen=True)
class Norms:
    """Norms of a sample's real tokens, each a tensor `[...]`; NaN for a sample with none or a non-finite token.

    `mean`, `median` (of an even number the mean of the middle two) and `maximum` are Euclidean
    norms, `sink_share` is the share of tokens whose norm is more than 10 times the median, 0 ... 1.

    >>> found = norms(np.array([[3.0, 4.0], [0.0, 1.0], [1.0, 0.0]]))
    >>> found.median.item(), found.maximum.item(), found.sink_share.item()
    (1.0, 5.0, 0.0)
    """

    mean: Tensor
    median: Tensor
    maximum: Tensor
    sink_share: Tensor


def norms(tokens: Array | Tokens, mask: Array | None = None) -> Norms:
    """Return mean, median and largest norm of each sample's tokens, and their share of sinks.

    `tokens` is `[..., T, D]`, `mask` `[..., T]` marks real tokens (None: all) and broadcasts over
    leading dimensions.

    Source: Sun et al. 2024, Massive Activations in Large Language Models.

    >>> tokens, mask = np.array([[3.0, 4.0], [0.0, 1.0], [9.0, 9.0]]), np.array([1, 1, 0])  # the last is padding
    >>> norms(tokens, mask).mean.item()
    3.0
    """
    tokens = Tokens.of(tokens, mask)
    count = tokens.real.sum(-1)
    kept = tokens.norms.masked_fill(~tokens.real, 0.0)
    mean = kept.sum(-1) / count  # 0 / 0 is the NaN of a sample without tokens
    sinks = tokens.sinks.sum(-1).to(mean.dtype) / count
    parts = (mean, tokens.median, kept.amax(-1), sinks)
    return Norms(
        *(part.masked_fill(~torch.isfinite(mean), torch.nan) for part in parts)
    )


NORM_MEAN = Metric(
    norms,
    FromTokens(lambda tokens: tokens.once(norms).mean),
    name="norm_mean",
    title="token norm",
    reading="mean length of a token's state",
    meaning="Mean Euclidean norm of a sample's tokens; from 0. Averaged over samples.",
    direction="It grows with depth where blocks add to what they read; after a norm it says nothing.",
)
NORM_MEDIAN = Metric(
    norms,
    FromTokens(lambda tokens: tokens.once(norms).median),
    name="norm_median",
    title="median norm",
    reading="length of the middle token's state",
    meaning="Median Euclidean norm of a sample's tokens; from 0. Averaged over samples.",
    direction="Far below the mean norm: a few tokens carry most of it.",
)
NORM_MAX = Metric(
    norms,
    FromTokens(lambda tokens: tokens.once(norms).maximum),
    name="norm_max",
    title="largest norm",
    reading="length of the longest token's state",
    meaning="Largest Euclidean norm among a sample's tokens; from 0. Averaged over samples.",
    direction="Far above the median norm: massive activations.",
)
SINK_SHARE = Metric(
    norms,
    FromTokens(lambda tokens: tokens.once(norms).sink_share),
    name="sink_share",
    unit="%",
    reading="share of tokens with more than 10 times their sample's median norm",
    meaning="Share of a sample's tokens whose norm is more than 10 times the sample's median norm at that layer; from "
    "0 to 100 %. Averaged over samples.",
    direction="Above 0: a few tokens carry most of the norm. They dominate means over tokens and entropies of raw "
    "states; "
    "the option exclude_sinks leaves them out.",
)
SINKS = Metric(
    norms,
    FromTokens(lambda tokens: tokens.sinks.sum(-1)),
    name="sinks",
    unit="tokens",
    reading="tokens with more than 10 times their sample's median norm",
    meaning="Number of a sample's tokens whose norm is more than 10 times the sample's median norm at that layer; "
    "with the option exclude_sinks they are left out of entropies and means. Averaged over samples.",
    direction="Above 0: a few tokens carry most of the norm, as in many large language models.",
    beside=("norm_mean", "norm_median", "norm_max", "sink_share", "exclude_sinks"),
)

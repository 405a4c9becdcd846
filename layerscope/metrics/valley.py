"""Compression valleys: how one massive token makes the tokens of a sample look alike.

Of a sample whose first token has the squared norm M and whose other tokens have R together, the
first singular value carries at least M / (M + R) of the sum of squares. Where M grows in the middle
layers, that share goes to 1 and the entropy of the spectrum to 0: a valley. Heads give such a token
their attention: a sink.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from layerscope.metrics.arrays import Array, as_tensor, real_mask
from layerscope.metrics.factors import Tokens
from layerscope.metrics.metric import FromForward, Metric
from layerscope.metrics.spectrum import eigenvalues, entropy_of_spectrum, small_gram


@dataclass(frozen=True)
class Valley:
    """Compression of a sample's tokens, and the norms behind it, each a tensor `[...]`.

    `entropy` is the Shannon entropy of the shares of squared singular values over its largest
    value, log min(tokens, D), 0 ... 1; `first_singular` is the largest of these shares.
    `first_norm` and `largest_norm` are the norms of the first and of the longest token over the
    median norm.

    >>> alike = valley(np.ones((4, 3)))  # all tokens lie on one line
    >>> round(alike.entropy.item(), 6), alike.largest_norm.item()
    (0.0, 1.0)
    """

    entropy: Tensor
    first_singular: Tensor
    first_norm: Tensor
    largest_norm: Tensor


def valley(tokens: Array | Tokens, mask: Array | None = None) -> Valley:
    """Return how compressed each sample's tokens are, as they are, and how long its first and longest token are.

    `tokens` is `[..., T, D]`, `mask` `[..., T]` marks real tokens (None: all). Samples of one token
    and those with a non-finite token give NaN.

    Source: Queipo-de-Llano et al. 2025, Attention Sinks and Compression Valleys in LLMs are Two
    Sides of the Same Coin.

    >>> found = valley(np.array([[30.0, 0.0], [0.0, 1.0], [1.0, 0.0]]))  # the first token is massive
    >>> round(found.first_singular.item(), 3), found.first_norm.item()
    (0.999, 30.0)
    """
    tokens = Tokens.of(tokens, mask)
    return _of_some(tokens, tokens.real)


def valley_without_sinks(tokens: Tokens) -> Valley:
    """Return the same of the tokens that are no sinks; norms are still over the median of all.

    >>> massive = Tokens(torch.tensor([[30.0, 0.0], [0.0, 1.0], [1.0, 0.0]]))
    >>> round(valley_without_sinks(massive).first_singular.item(), 3)
    0.5
    """
    return _of_some(tokens, tokens.real & ~tokens.sinks)


def _of_some(tokens: Tokens, used: Tensor) -> Valley:
    count = used.sum(-1)
    shares = _shares(tokens, used)
    limit = count.clamp(max=tokens.states.shape[-1]).double().log()
    real_norms = tokens.norms.masked_fill(~used, 0.0)
    first = used.int().argmax(-1, keepdim=True)
    first_norm = real_norms.gather(-1, first).squeeze(-1)
    parts = (
        entropy_of_spectrum(shares, 1.0) / limit,
        shares[..., -1],
        first_norm / tokens.median,
        real_norms.amax(-1) / tokens.median,
    )
    undefined = (count < 2) | ~torch.isfinite(real_norms.sum(-1))
    return Valley(*(part.double().masked_fill(undefined, torch.nan) for part in parts))


def _shares(tokens: Tokens, used: Tensor) -> Tensor:
    """Return the share of each squared singular value of the used tokens in their sum, ascending `[..., min(T, D)]`."""
    gram = tokens.once(_gram)
    length, width = tokens.states.shape[-2:]
    if length < width:
        among_used = used[..., None] & used[..., None, :]
        gram = gram.masked_fill(~among_used, 0.0)
    elif not used.all():
        gram = small_gram(_kept(tokens, used).double())
    (values,) = eigenvalues([gram])
    return values / values.sum(-1, keepdim=True)


def _gram(tokens: Tokens) -> Tensor:
    """Return the products of all tokens, or of features if these are fewer.

    In float64: beside one massive token float32 has lost the others.
    """
    return small_gram(_kept(tokens, tokens.real).double())


def _kept(tokens: Tokens, used: Tensor) -> Tensor:
    """Return the states, zero for tokens that are not used or not finite."""
    # a token is finite where its norm is: far fewer numbers to look at
    used = used & torch.isfinite(tokens.norms)
    if used.all():
        return tokens.states
    return tokens.states.masked_fill(~used[..., None], 0.0)


def first_token_attention(weights: Array, mask: Array | None = None) -> Tensor:
    """Return the mean attention that each head gives to a sample's first token, `[..., H]`, 0 ... 1.

    `weights` is `[..., H, T, T]`, of queries to keys, `mask` `[..., T]` marks real tokens (None:
    all). The mean is over the tokens after the first, which in a causal model attends to itself
    alone; NaN where there are none.

    Source: Gu et al. 2025, When Attention Sink Emerges in Language Models.

    >>> first_token_attention(np.array([[[1.0, 0.0], [0.75, 0.25]]])).item()
    0.75
    """
    weights = as_tensor(weights, "weights", 3)
    real = real_mask(weights[..., 0, :, :], mask)
    first = real.int().argmax(-1, keepdim=True)
    after = real.scatter(-1, first, False)
    columns = first[..., None, None, :].expand(*weights.shape[:-1], 1)
    to_first = weights.gather(-1, columns).squeeze(-1).double()
    to_first = to_first.masked_fill(~after[..., None, :], 0.0)
    return to_first.sum(-1) / after.sum(-1)[..., None]


VALLEY = Metric(
    valley,
    FromForward(),
    title="token entropy",
    reading="1: a text's tokens point everywhere, 0: they lie on one line",
    formula="− Σ pᵢ log pᵢ / log min(T, D), pᵢ = σᵢ² / Σ σ², σ the singular values of a sample's T tokens as they are",
    meaning="Entropy of the singular values of a sample's raw tokens over its largest possible value; from 0 to 1. "
    "Measured of all tokens and without those of more than 10 times the median norm (sinks), with `--ablate sinks` "
    "also in a forward without the MLP writes that make these. Averaged over samples.",
    direction="A valley in the middle layers that is gone without sinks is the work of one massive token.",
    low=True,
)
FIRST_SINGULAR = Metric(
    valley,
    FromForward(),
    name="first_singular",
    title="first singular value",
    unit="%",
    reading="its share in the sum of squares of a text's tokens",
    meaning="Share of the largest squared singular value of a sample's raw tokens; from 0 to 100 %. Averaged over "
    "samples.",
    direction="Near 100 %: the tokens lie on one line, or one of them is massive.",
    beside=("valley",),
)
FIRST_NORM = Metric(
    valley,
    FromForward(),
    name="first_norm",
    title="first token's norm",
    unit="× median",
    reading="length of the first token over that of the middle one",
    meaning="Norm of a sample's first token over the median norm at that layer; from 0. Averaged over samples.",
    direction="Above 10: the first token is massive, as where heads use it as a sink.",
    log=True,
    beside=("valley",),
)
LARGEST_NORM = Metric(
    valley,
    FromForward(),
    name="largest_norm",
    title="largest token's norm",
    unit="× median",
    reading="length of the longest token over that of the middle one",
    meaning="Largest norm of a sample's tokens over their median norm at that layer; from 1. Averaged over samples.",
    direction="Above 10: a token is massive. Above the first token's: it is another token than the first.",
    log=True,
    beside=("valley",),
)
FIRST_ATTENTION = Metric(
    first_token_attention,
    FromForward(),
    name="first_attention",
    title="attention to the first token",
    unit="%",
    reading="share of the other tokens' attention, of the mean head and of the largest",
    meaning="Attention that the tokens after the first give to it, by head: the mean of the heads of a block, and the "
    "largest. From 0 to 100 %. Averaged over samples.",
    direction="High: heads use the first token as a sink.",
    beside=("valley",),
)

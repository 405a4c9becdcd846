"""The entropy of one sample's tokens, of tokens at once or, in a pass, from Grams that are kept for later.

While a model runs, a layer's tokens are at hand for a moment. Then only their Gram is taken, a
product of matrices; the eigenvalues of all layers' Grams are found together once the batch is
through, which is several times as fast as one call a layer.

    layer 0    tokens [32, 50, 384]  →  Grams [32, 50, 50]
    …
    layer 6    tokens [32, 50, 384]  →  Grams [32, 50, 50]
    at the end [7, 32, 50, 50]  →  eigenvalues  →  entropies [7, 32]
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from layerscope.core import LayerscopeError
from layerscope.metrics.arrays import (
    Array,
    as_result,
    as_tensor,
    check_choice,
    real_first,
    unit_rows,
)
from layerscope.metrics.factors import FromTokens, Tokens, entropy_variant
from layerscope.metrics.matrix_entropy import ROWS, entropy_of_rows, scaled_rows
from layerscope.metrics.metric import Metric
from layerscope.metrics.spectrum import (
    check_alpha,
    collision_entropy,
    eigenvalues,
    entropy_limit,
    entropy_of_spectrum,
    symmetric_product,
)


def prompt_entropy(
    tokens: Array,
    mask: Array | None = None,
    alpha: float = 1.0,
    rows: str = "unit",
    normalization: str | None = None,
    prefixes: Sequence[int] | None = None,
) -> float | Tensor:
    """Return `matrix_entropy` over the real tokens of each sample, one value a sample.

    `tokens` is `[..., T, D]`, `mask` `[..., T]` marks real tokens (None: all) and broadcasts over
    leading dimensions; the value `[...]` is in nats, 0 ... log min(real tokens, D). Padding does
    not enter. One real token gives 0; a sample with none, or with a non-finite token, gives NaN.
    `prefixes` gives one more dimension, `[..., len(prefixes)]`: the value over the first n real
    tokens for each n in it, NaN where a sample has fewer. `normalization` counts real tokens as N;
    other options are those of `matrix_entropy`.

    Source: Skean et al. 2025, Layer by Layer, section 3 and equation 1, of raw rows; prefixes as in
    figure 5.

    >>> round(prompt_entropy(np.eye(3)), 4)  # ln 3: three tokens, three directions
    1.0986
    """
    check_choice(rows, "rows", ROWS)
    check_alpha(alpha)
    entropy_limit(normalization, 2, 2)
    states, lengths = real_first(as_tensor(tokens, "tokens", 2), mask)
    if prefixes is None:
        return as_result(_by_length(states, lengths, alpha, rows, normalization))
    if any(prefix < 1 for prefix in prefixes):
        raise LayerscopeError(
            f"prefix {min(prefixes)} holds no token: give prefix lengths from 1"
        )
    entropies = states.new_empty(*states.shape[:-2], len(prefixes))
    for i, prefix in enumerate(prefixes):
        reached = torch.where(lengths >= prefix, prefix, 0)
        entropies[..., i] = _by_length(
            states[..., :prefix, :], reached, alpha, rows, normalization
        )
    return entropies


def _by_length(
    states: Tensor, lengths: Tensor, alpha: float, rows: str, normalization: str | None
) -> Tensor:
    """Group samples by length: a padded Gram adds eigenvalues of +-1e-8 that are no part of the sample."""
    flat = states.reshape(-1, *states.shape[-2:])
    counts = lengths.reshape(-1)
    values = flat.new_full(counts.shape, torch.nan)
    for length in filter(None, torch.unique(counts).tolist()):
        chosen = counts == length
        sample = flat[chosen, :length]
        broken = ~torch.isfinite(sample).all(-1).all(-1)
        sample = sample.masked_fill(broken[:, None, None], 0.0)
        if rows != "unit":
            sample = sample.double()
        entropy = entropy_of_rows(scaled_rows(sample, rows), alpha)
        limit = entropy_limit(normalization, length, flat.shape[-1])
        values[chosen] = (entropy / limit).to(flat.dtype).masked_fill(broken, torch.nan)
    return values.reshape(lengths.shape)


class Grams(NamedTuple):
    """The Grams of one layer's samples `[B, n, n]` by how rows are scaled, and how many tokens each has `[B]`."""

    grams: dict[str, Tensor]
    lengths: Tensor
    of_tokens: bool
    """Whether n counts tokens, the first rows and columns being the sample; else it counts features."""


def token_gram(
    tokens: Tensor, mask: Tensor | None = None, rows: str = "unit"
) -> Tensor:
    """Return the Grams of the real tokens `[..., T, D]`, T x T with zeros after them, or D x D if D < T.

    It is the half of `prompt_entropy` that runs while a layer's tokens are at hand; the other is
    `entropy_of_grams`. Rows that are not scaled to unit norm alone give float64: beside one massive
    token float32 has lost the others.
    """
    states, lengths = real_first(as_tensor(tokens, "tokens", 2), mask)
    length, width = states.shape[-2:]
    padding = torch.arange(length, device=states.device) >= lengths[..., None]
    if rows != "unit":
        states = states.double()
        if rows == "centered":
            # less the first token, equal ones are exactly zero, and so is their mean
            moved = (states - states[..., :1, :]).masked_fill(padding[..., None], 0.0)
            mean = moved.sum(-2, keepdim=True) / lengths[..., None, None]
            states = unit_rows(moved - mean)
        states = states.masked_fill(padding[..., None], 0.0)
        return symmetric_product(states if length > width else states.mT)
    if length > width:
        if mask is not None:
            states = states.masked_fill(padding[..., None], 0.0)
        unit = unit_rows(states)
        return unit.mT @ unit
    gram = states @ states.mT
    # Scaled in place: T x T entries are fewer than the T x D of the rows.
    norms = torch.linalg.diagonal(gram).sqrt()
    inverse = torch.where(norms == 0, norms, norms.reciprocal())
    gram.mul_(inverse[..., :, None]).mul_(inverse[..., None, :])
    if mask is not None and (lengths < length).any():
        gram.masked_fill_(padding[..., :, None] | padding[..., None, :], 0.0)
    return gram


def entropy_of_grams(
    grams: Tensor, lengths: Tensor, alpha: float, of_tokens: bool
) -> Tensor:
    """Return S_alpha `[...]` of Grams `[..., n, n]` of samples with `lengths` `[...]` real tokens; see `Grams`.

    Empty samples and non-finite Grams give NaN; below alpha 1 a Gram has already lost the small
    eigenvalues that count.
    """
    if not alpha >= 1.0:
        raise LayerscopeError(
            f"alpha={alpha} needs singular values: call prompt_entropy with the tokens"
        )
    flat = grams.flatten(0, -3)
    sizes = lengths.flatten().to(grams.device)
    # LAPACK may not return from a matrix with NaN in it.
    fine = torch.isfinite(torch.linalg.diagonal(flat)).all(-1)
    sizes = torch.where(fine, sizes, 0)
    present = [n for n in torch.unique(sizes).tolist() if n > 0]
    groups = []
    for n in present:
        size = n if of_tokens else flat.shape[-1]
        group = flat if (sizes == n).all() else flat[sizes == n]
        groups.append(group[:, :size, :size])
    values = flat.new_full(sizes.shape, torch.nan)
    if alpha == 2.0:
        for n, group in zip(present, groups, strict=True):
            values[sizes == n] = collision_entropy(group)
    else:
        for n, spectrum in zip(present, eigenvalues(groups), strict=True):
            # A Gram has at most as many non-zero eigenvalues as tokens; the rest is rounding.
            values[sizes == n] = entropy_of_spectrum(spectrum[:, -n:], alpha)
    return values.reshape(lengths.shape)


def _grams(tokens: Tokens) -> Grams:
    """Return the Grams of a layer, for each way in which its rows are to be scaled."""
    length, width = tokens.states.shape[-2:]
    grams = {rows: token_gram(tokens.states, tokens.used, rows) for rows in tokens.rows}
    return Grams(grams, tokens.lengths, length <= width)


def _entropies(
    layers: Sequence[Grams], orders: Sequence[float], chosen: Any
) -> dict[str, Tensor]:
    """Return S_alpha `[L, B]` of all layers at once; where eigenvalues are dear, of the `chosen` samples alone."""
    by_variant = {}
    lengths = torch.stack([layer.lengths for layer in layers])
    for rows in layers[0].grams:
        grams = torch.stack([layer.grams[rows] for layer in layers])
        for alpha in orders:
            some = slice(None) if alpha == 2.0 else chosen
            values = grams.new_full(lengths.shape, torch.nan)
            values[:, some] = entropy_of_grams(
                grams[:, some], lengths[:, some], alpha, layers[0].of_tokens
            )
            by_variant[entropy_variant(alpha, rows)] = values.float()
    return by_variant


PROMPT_ENTROPY = Metric(
    prompt_entropy,
    FromTokens(_grams, _entropies),
    unit="nats",
    reading="nats; low: a sample's tokens are compressed",
    formula="S_α = log(Σ λᵢ^α) / (1 − α), S₁ = −Σ λᵢ log λᵢ, λ the eigenvalues of Z Zᵀ / tr(Z Zᵀ), Z a sample's tokens "
    "at unit length; raw: as they are; centred: minus their mean, then at unit length",
    meaning="Entropy of the normalised eigenvalues of the Gram matrix of one sample's tokens, each token scaled to "
    "unit length unless it is called raw or centred; from 0 (all tokens point one way) to log min(tokens, width). "
    "Averaged over samples.",
    direction="Low: the tokens of a sample are compressed. Often a valley in the middle layers, and in two published "
    "language models the valley lies near the best layers; a hypothesis elsewhere.",
    low=True,
)

"""One call for every similarity of every two layers."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from layerscope.metrics.arrays import check_choice
from layerscope.metrics.pairs.blocks import States
from layerscope.metrics.pairs.cosines import mean_cosines
from layerscope.metrics.pairs.linear_cka import linear_cka


def similarity_matrix(states: States, metric: str = "cka", *, others: States | None = None, **options: Any) -> Tensor:
    """Return the similarity of every two layers, `[L, L']` in float64, reading states in blocks.

    `states` is `[N, L, D]`, an array, a tensor, or an object with a shape and slices of rows; `others` is `[N, L',
    D']` of the same samples, as of another model, or None for all pairs of `states`. "cka" is linear `cka`
    (`debiased`, N >= 4; always centred), exactly that of each pair; "cosine_similarity" is the mean of
    `cosine_similarity` over the samples whose cosine is defined (`center`). Rows and columns of a layer
    that does not vary are NaN. Memory is bounded whatever N. Raises `LayerscopeError` for non-finite
    states, shapes and options.

    Source: Tracing Representation Progression, section 2; Kornblith et al. 2019.
    """
    check_choice(metric, "metric", ("cka", "cosine_similarity"))
    measure = linear_cka if metric == "cka" else mean_cosines
    return measure(states, others, **options)

"""How good a continued text is without a reference: does it fit its prefix, and does it repeat itself."""

from collections.abc import Hashable, Sequence

import torch
from torch import Tensor

from layerscope.core import LayerscopeError
from layerscope.metrics.arrays import Array, as_pair64

_GRAMS = (2, 3, 4)


def coherence(prefix_embeddings: Array, text_embeddings: Array) -> Tensor:
    """Return the cosine of each prefix and its continuation, `[...]`, −1 … 1, float64.

    Both are `[..., N, D]`, embeddings by any sentence encoder.

    Source: Su et al. 2022, A contrastive framework for neural text generation.

    >>> coherence(np.array([[1.0, 0.0]]), np.array([[1.0, 1.0]]))
    tensor([0.7071], dtype=torch.float64)
    """
    names = ("prefix_embeddings", "text_embeddings")
    mend = "give embeddings by one encoder"
    first, second = as_pair64(prefix_embeddings, text_embeddings, names, mend)
    return torch.nn.functional.cosine_similarity(first, second, dim=-1)


def diversity(tokens: Sequence[Hashable]) -> float:
    """Return the product over n = 2, 3, 4 of the share of n-grams that are distinct, 0 … 1.

    `tokens` are those of one text. Raises `LayerscopeError` for fewer than four.

    Source: Su et al. 2022; Tracing Representation Progression, equation 22.

    >>> diversity("to be or not to be".split())  # 4 of 5 pairs are distinct
    0.8
    """
    if len(tokens) < _GRAMS[-1]:
        raise LayerscopeError(
            f"{len(tokens)} tokens have no {_GRAMS[-1]}-gram: give a longer text"
        )
    share = 1.0
    for n in _GRAMS:
        grams = list(zip(*(tokens[start:] for start in range(n)), strict=False))
        share *= len(set(grams)) / len(grams)
    return share

"""Vectors that an index of the full model's vectors understands: a linear map from a smaller model's vectors to them.

The map is the least squares one on texts, with a small ridge, and becomes a Dense module of the
checkpoint: it loads in plain sentence-transformers. Where the full model normalises its vectors,
so does the mapped one.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from layerscope.shrinking.tasks import Floats, vectors_on
from layerscope.truncation.source import Source

MAPPED = 10000
"""Texts at most that a map is fitted on."""
RIDGE = 1e-3
"""The ridge, as a share of the mean variance of a dimension."""


def fitted_map(vectors: Floats, wanted: Floats) -> tuple[Floats, Floats]:
    """Return weights [E, D] and a bias [E] that lead from vectors [n, D] to the wanted ones [n, E]."""
    center = vectors.mean(0)
    target = wanted.mean(0)
    x = vectors - center
    y = wanted - target
    products = x.T @ x
    ridge = RIDGE * np.trace(products) / len(products) * np.eye(len(products))
    weights = np.linalg.solve(products + ridge, x.T @ y).T
    return weights, target - weights @ center


def write_mapped(
    small: Source, full: Source, texts: Sequence[Any], folder: Path
) -> None:
    """Write a small model's checkpoint with a map to the full model's vectors after its modules."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Dense, Normalize

    some = texts[:MAPPED]
    vectors, wanted = (vectors_on(one.model, some) for one in (small, full))
    weights, bias = fitted_map(vectors, wanted)
    modules = list(small.model.loaded.served or ())
    linear = Dense(
        weights.shape[1],
        weights.shape[0],
        activation_function=nn.Identity(),
        init_weight=torch.from_numpy(weights).to(small.dtype),
        init_bias=torch.from_numpy(bias).to(small.dtype),
    )
    after = [linear.to(small.model.device)]
    if type(modules[-1]).__name__ == "Normalize":
        after.append(Normalize())
    SentenceTransformer(
        modules=[*modules, *after], device=str(small.model.device)
    ).save_pretrained(str(folder))

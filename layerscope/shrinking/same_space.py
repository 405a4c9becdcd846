"""Vectors that an index of the full model's vectors understands: a linear map from a smaller model's vectors to them.

The map is the least squares one on the user's samples, which the index of the full model has
anyway. Its ridge pulls towards leaving the vectors as they are, so that few samples do no harm. It
becomes a Dense module of the checkpoint, which loads in plain sentence-transformers. Where the full
model normalises its vectors, so does the mapped one.
"""

from pathlib import Path

import numpy as np
import torch
from torch import nn

from layerscope.shrinking.tasks import INDEXED, LEARN, VALIDATION, Floats, Task
from layerscope.truncation.source import Source

RIDGES = (0.01, 0.1, 1.0, 10.0)
"""The ridges that are tried, as shares of the mean variance of a dimension."""


def fitted_map(vectors: Floats, wanted: Floats, ridge: float) -> tuple[Floats, Floats]:
    """Return weights [D, D] and a bias [D] that lead from vectors [n, D] to the wanted ones [n, D]."""
    center = vectors.mean(0)
    target = wanted.mean(0)
    x = vectors - center
    missing = wanted - target - x
    products = x.T @ x
    unchanged = np.eye(len(products))
    penalty = ridge * np.trace(products) / len(products) * unchanged
    weights = unchanged + np.linalg.solve(products + penalty, x.T @ missing).T
    return weights, target - weights @ center


def best_map(small: Source, task: Task) -> tuple[Floats, Floats]:
    """Return the map by which most neighbours of the validation samples are found in the old index."""
    vectors = task.read(small.model, LEARN, INDEXED)
    validation = task.read(small.model, VALIDATION)
    maps = [fitted_map(vectors, task.by_full(LEARN), ridge) for ridge in RIDGES]
    recalls = [
        task.recall(validation @ weights.T + bias, VALIDATION) for weights, bias in maps
    ]
    return maps[int(np.argmax(recalls))]


def write_mapped(small: Source, task: Task, folder: Path) -> None:
    """Write a small model's checkpoint with a map to the full model's vectors after its modules."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Dense, Normalize

    weights, bias = best_map(small, task)
    modules = list(small.model.loaded.served or ())
    linear = Dense(
        weights.shape[1],
        weights.shape[0],
        activation_function=nn.Identity(),
        init_weight=torch.from_numpy(weights).to(small.dtype),
        init_bias=torch.from_numpy(bias).to(small.dtype),
    )
    normalises = type(modules[-1]).__name__ == "Normalize"
    modules.append(linear.to(small.model.device))
    if normalises:
        modules.append(Normalize())
    SentenceTransformer(
        modules=modules, device=str(small.model.device)
    ).save_pretrained(str(folder))

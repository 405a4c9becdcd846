"""Samples in batches by length, longest first: little padding, and memory runs out early or never."""

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from layerscope.models.layered import LayeredModel

TOKENS_PER_BATCH = {"cpu": 2048, "cuda": 32768}
TOKENS_WORTH_A_BATCH = {"cpu": 512, "cuda": 8192}
# a batch that is worth its while ends where a sample would be a fifth padding
RAGGED = 0.8
ROWS_PER_BATCH = {"cpu": 64, "cuda": 512}


def batch_starts(
    model: LayeredModel, lengths: Iterable[int], batch_size: int | None
) -> npt.NDArray[np.bool_]:
    """Return where batches start among samples sorted by length, longest first: [N].

    A batch has little padding, none where padding changes the states, and its samples fit together
    in memory.
    """
    kind = "cuda"
    if model.device.type == "cpu":
        kind = "cpu"
    enough: float = TOKENS_WORTH_A_BATCH[kind]
    if batch_size is not None:
        enough = math.inf
    size = limit = longest = 0
    starts: list[bool] = []
    for length in lengths:
        ragged = length < RAGGED * longest and size * longest >= enough
        alone = not model.joins(length, longest) or (length == 0 and longest > 0)
        starts.append(size >= limit or ragged or alone)
        if starts[-1]:
            size = 0
            longest = length
            tokens = model.tokens
            if model.encoder.modality == "text":
                tokens = length
            most = TOKENS_PER_BATCH[kind] // max(1, tokens)
            limit = batch_size or max(1, min(ROWS_PER_BATCH[kind], most))
            if not model.batching:
                limit = 1
        size += 1
    return np.array(starts, dtype=bool)


def batches_of(
    model: LayeredModel, lengths: Sequence[int], batch_size: int | None = None
) -> list[list[int]]:
    """Return the rows of each batch, longest first."""
    rows = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    descending = [lengths[i] for i in rows]
    starts = np.flatnonzero(batch_starts(model, descending, batch_size))
    ends = pairwise([*starts.tolist(), len(rows)])
    return [rows[start:end] for start, end in ends]

"""Pairs of texts with a score of how alike they are, which the similarity of their vectors ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from layerscope.core.errors import LayerscopeError
from layerscope.evaluation.kind import FileKind, numbers, refuse

if TYPE_CHECKING:
    import pandas as pd

FEWEST = 3


def _check(rows: pd.DataFrame, source: str) -> pd.DataFrame:
    scores = numbers(rows["score"])
    refuse(~np.isfinite(scores), rows["score"], source, "give a number, or leave the row out")
    if len(scores) < FEWEST or scores.nunique() < 2:
        raise LayerscopeError(f"{source} has {len(scores)} pairs and {scores.nunique()} scores: give more to rank")
    return rows.assign(score=scores)


KIND = FileKind(
    "sts", ("text_a", "text_b", "score"), "STS", "cosine_spearman", _check,
    renamed={"text_a": "sentence1", "text_b": "sentence2"},
    about=lambda rows: {"min_score": rows["score"].min(), "max_score": rows["score"].max()},
)  # fmt: skip

"""Similarity of two texts, as mteb judges it: the rank correlation of cosines with the scores."""

from typing import Any

import numpy as np
import pandas as pd

from layerscope.core import LayerscopeError
from layerscope.evaluation.table_tasks import TWO_TEXTS, TableKind
from layerscope.scores.files import as_numbers, refuse_rows

FEWEST_PAIRS = 3


def similarity_scores(rows: pd.DataFrame, source: str) -> pd.DataFrame:
    """Return rows with their scores as numbers, which must differ."""
    scores = as_numbers(rows["score"])
    refuse_rows(
        ~np.isfinite(scores),
        rows["score"],
        source,
        "give a number, or leave the row out",
    )
    if len(scores) < FEWEST_PAIRS or scores.nunique() < 2:
        raise LayerscopeError(
            f"{source} has {len(scores)} pairs and {scores.nunique()} different scores: a correlation needs "
            f"{FEWEST_PAIRS} pairs and 2 different scores"
        )
    return rows.assign(score=scores)


def score_range(rows: pd.DataFrame) -> dict[str, Any]:
    """Return the attributes that mteb's task has of its scores."""
    return {"min_score": rows["score"].min(), "max_score": rows["score"].max()}


KIND = TableKind(
    "sts",
    texts=("text_a", "text_b"),
    label="score",
    type="STS",
    main_score="cosine_spearman",
    renamed=TWO_TEXTS,
    score="Spearman of the cosine",
    check=similarity_scores,
    attributes=score_range,
)

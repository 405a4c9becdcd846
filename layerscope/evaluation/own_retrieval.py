"""Queries and documents of a file as the data of an mteb retrieval."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from layerscope.core.errors import LayerscopeError

if TYPE_CHECKING:
    import pandas as pd


def relevances(column: pd.Series, place: Path) -> pd.Series:
    """Return the scores of query-document rows as whole numbers from 0 (in the corpus, not relevant) on."""
    import pandas as pd

    scores = pd.to_numeric(column, errors="coerce").astype("float64")
    wrong = np.flatnonzero(~np.isfinite(scores) | (scores < 0) | (scores % 1 != 0))
    if len(wrong):
        row, value = column.index[wrong[0]] + 1, column.iloc[wrong[0]]
        raise LayerscopeError(f"{place}: row {row} has the score {value!r}: a relevance is a whole number from 0 on")
    if not (scores > 0).any():
        raise LayerscopeError(f"{place}: no document has a score above 0: mark those that answer their query with 1")
    return scores.astype("int64")


def check_documents(frame: pd.DataFrame, place: Path) -> None:
    """Raise where there is nothing to choose from."""
    if frame["document"].nunique() < 2:
        raise LayerscopeError(f"{place} holds one document for all queries: give more to search in")


def retrieval_data(frame: pd.DataFrame) -> dict[str, Any]:
    """Return mteb's data of one split: distinct documents, the distinct queries that have an answer, and which it is.

    Of a query and document that stand in several rows the highest score counts.
    """
    from datasets import Dataset

    answered = frame[frame["score"] > 0]
    documents = {text: f"d{i}" for i, text in enumerate(frame["document"].unique())}
    queries = {text: f"q{i}" for i, text in enumerate(answered["query"].unique())}
    relevant: dict[str, dict[str, int]] = {name: {} for name in queries.values()}
    for query, document, score in zip(answered["query"], answered["document"], answered["score"], strict=True):
        found = relevant[queries[query]]
        found[documents[document]] = max(found.get(documents[document], 0), int(score))
    return {
        "corpus": Dataset.from_dict({"id": list(documents.values()), "text": list(documents)}),
        "queries": Dataset.from_dict({"id": list(queries.values()), "text": list(queries)}),
        "relevant_docs": relevant,
        "top_ranked": None,
    }

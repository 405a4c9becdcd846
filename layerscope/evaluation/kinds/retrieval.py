"""Queries and the documents that answer them, among all documents of the file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from layerscope.core.errors import LayerscopeError
from layerscope.evaluation.kind import FileKind, Splits, numbers, refuse

if TYPE_CHECKING:
    import pandas as pd


def _check(rows: pd.DataFrame, source: str) -> pd.DataFrame:
    """Return rows with their relevance as a whole number: 0 is a document that is searched and does not answer."""
    if rows["document"].nunique() < 2:
        raise LayerscopeError(f"{source} holds one document for all queries: give more to search in")
    scores = numbers(rows["score"])
    wrong = ~np.isfinite(scores) | (scores < 0) | (scores % 1 != 0)
    refuse(wrong, rows["score"], source, "a relevance is a whole number of at least 0")
    if not (scores > 0).any():
        raise LayerscopeError(f"{source}: no document has a score above 0: mark those that answer their query with 1")
    return rows.assign(score=scores.astype("int64"))


def _data(splits: Splits) -> dict[str, Any]:
    return {"default": {name: _split(rows) for name, rows in splits.items()}}


def _split(rows: pd.DataFrame) -> dict[str, Any]:
    """Return mteb's data of one split: distinct documents, the distinct queries that have an answer, and which it is.

    Of a query and document that stand in several rows the highest score counts.
    """
    from datasets import Dataset

    answered = rows[rows["score"] > 0]
    documents = {text: f"d{i}" for i, text in enumerate(rows["document"].unique())}
    queries = {text: f"q{i}" for i, text in enumerate(answered["query"].unique())}
    relevant: dict[str, dict[str, int]] = {name: {} for name in queries.values()}
    for (query, document), score in answered.groupby(["query", "document"], sort=False)["score"].max().items():
        relevant[queries[query]][documents[document]] = int(score)
    return {
        "corpus": Dataset.from_dict({"id": list(documents.values()), "text": list(documents)}),
        "queries": Dataset.from_dict({"id": list(queries.values()), "text": list(queries)}),
        "relevant_docs": relevant,
        "top_ranked": None,
    }


KIND = FileKind(
    "retrieval", ("query", "document", "score"), "Retrieval", "ndcg_at_10", _check, default=1, data=_data
)  # fmt: skip

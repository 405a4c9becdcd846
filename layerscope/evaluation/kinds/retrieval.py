"""Retrieval, as mteb judges it: all documents of the table are searched for each query."""

from typing import Any

import numpy as np
import pandas as pd

from layerscope.core import LayerscopeError
from layerscope.evaluation.table_tasks import Splits, TableKind
from layerscope.scores.files import as_numbers, refuse_rows


def relevance(rows: pd.DataFrame, source: str) -> pd.DataFrame:
    """Return rows with their relevance as a whole number: 0 is a document that is searched and does not answer."""
    scores = as_numbers(rows["score"])
    wrong = ~np.isfinite(scores) | (scores < 0) | (scores % 1 != 0)
    refuse_rows(
        wrong, rows["score"], source, "a relevance is a whole number of at least 0"
    )
    if not (scores > 0).any():
        raise LayerscopeError(
            f"{source}: no document has a score above 0: mark those that answer their query with 1"
        )
    return rows.assign(score=scores.astype("int64"))


def searches(splits: Splits) -> dict[str, Any]:
    """Return mteb's data of each split: distinct documents, the distinct queries that have an answer, and which it is.

    Of a query and document that stand in several rows the highest score counts.
    """
    from datasets import Dataset

    data = {}
    for name, rows in splits.items():
        answered = rows[rows["score"] > 0]
        documents = {text: f"d{i}" for i, text in enumerate(rows["document"].unique())}
        queries = {text: f"q{i}" for i, text in enumerate(answered["query"].unique())}
        relevant: dict[str, dict[str, int]] = {query: {} for query in queries.values()}
        best = answered.groupby(["query", "document"], sort=False)["score"].max()
        for (query, document), score in best.items():
            relevant[queries[query]][documents[document]] = int(score)
        data[name] = {
            "corpus": Dataset.from_dict(
                {"id": list(documents.values()), "text": list(documents)}
            ),
            "queries": Dataset.from_dict(
                {"id": list(queries.values()), "text": list(queries)}
            ),
            "relevant_docs": relevant,
            "top_ranked": None,
        }
    return {"default": data}


KIND = TableKind(
    "retrieval",
    texts=("query", "document"),
    label="score",
    type="Retrieval",
    main_score="ndcg_at_10",
    default=1,
    note="score is a whole number, 1 if missing",
    score="nDCG@10",
    check=relevance,
    data=searches,
)

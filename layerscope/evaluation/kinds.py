"""The kinds of tasks on a table of your own texts, judged by mteb: a record each."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from layerscope.core.errors import LayerscopeError
from layerscope.scores.files import refuse_rows

Splits = dict[str, pd.DataFrame]
MOST_CLUSTERED = 4096
"""Rows that each of mteb's ten k-means draws, with replacement."""
FEWEST_PAIRS = 3
TRUE_FALSE = {"0": 0, "1": 1, "0.0": 0, "1.0": 1, "false": 0, "true": 1}


def _datasets(splits: Splits) -> Any:
    """Return splits as most tasks of mteb hold them."""
    from datasets import Dataset, DatasetDict

    return DatasetDict(
        {name: Dataset.from_pandas(rows, preserve_index=False) for name, rows in splits.items()}
    )


@dataclass(frozen=True)
class FileKind:
    """A kind of task on a table of texts.

    `columns` are those of the table, its label or score last, for which `default` stands in where
    it is not there; `renamed` says what mteb calls them. `type` and `main_score` are mteb's.
    `check` returns the rows of a file as they are judged, and refuses those that cannot be;
    `arrange` then makes the splits of them, by `samples` and `seed`. `about` gives attributes of
    mteb's task, `data` its data. The last argument of both checks names the data in errors.
    """

    columns: tuple[str, ...]
    type: str
    main_score: str
    check: Callable[[pd.DataFrame, str], pd.DataFrame]
    category: str = "t2t"
    default: int | None = None
    splits: tuple[str, ...] = ("test",)
    renamed: Mapping[str, str] = field(default_factory=dict)
    arrange: Callable[[Splits, int | None, int, str], Splits] = lambda splits, *_: splits
    about: Callable[[pd.DataFrame], dict[str, Any]] = lambda rows: {}
    data: Callable[[Splits], Any] = _datasets


def _labels(rows: pd.DataFrame, source: str) -> pd.DataFrame:
    """Return rows with their labels as texts, which must be two classes or more."""
    labels = rows["label"].astype(str).str.strip()
    refuse_rows(
        rows["label"].isna() | (labels == ""),
        rows["label"],
        source,
        "fill it in, or leave the row out",
    )
    if labels.nunique() < 2:
        raise LayerscopeError(
            f"{source}: every row has the label {labels.iloc[0]!r}: give two classes or more"
        )
    if labels.nunique() == len(labels):
        raise LayerscopeError(
            f"{source}: every row has a different label: give a column of classes as label"
        )
    return rows.assign(label=labels)


def _pairs(rows: pd.DataFrame, source: str) -> pd.DataFrame:
    rows = _labels(rows, source)
    labels = rows["label"].str.lower().map(TRUE_FALSE)
    refuse_rows(
        labels.isna(), rows["label"], source, "give 1 for a pair that belongs together, else 0"
    )
    return rows.assign(label=labels.astype("int64"))


def _scores(rows: pd.DataFrame, source: str) -> pd.DataFrame:
    scores = pd.to_numeric(rows["score"], errors="coerce").astype("float64")
    refuse_rows(~np.isfinite(scores), rows["score"], source, "give a number, or leave the row out")
    if len(scores) < FEWEST_PAIRS or scores.nunique() < 2:
        raise LayerscopeError(
            f"{source} has {len(scores)} pairs and {scores.nunique()} different scores: a correlation needs "
            f"{FEWEST_PAIRS} pairs and 2 different scores"
        )
    return rows.assign(score=scores)


def _graded(rows: pd.DataFrame, source: str) -> pd.DataFrame:
    """Return rows with their relevance as a whole number: 0 is a document that is searched and does not answer."""
    if rows["document"].nunique() < 2:
        raise LayerscopeError(
            f"{source} holds a single document for all queries: retrieval needs at least two"
        )
    scores = pd.to_numeric(rows["score"], errors="coerce").astype("float64")
    wrong = ~np.isfinite(scores) | (scores < 0) | (scores % 1 != 0)
    refuse_rows(wrong, rows["score"], source, "a relevance is a whole number of at least 0")
    if not (scores > 0).any():
        raise LayerscopeError(
            f"{source}: no document has a score above 0: mark those that answer their query with 1"
        )
    return rows.assign(score=scores.astype("int64"))


def _search(splits: Splits) -> dict[str, Any]:
    """Return mteb's data of each split: distinct documents, the distinct queries that have an answer, and which it is.

    Of a query and document that stand in several rows the highest score counts.
    """
    from datasets import Dataset

    found = {}
    for name, rows in splits.items():
        answered = rows[rows["score"] > 0]
        documents = {text: f"d{i}" for i, text in enumerate(rows["document"].unique())}
        queries = {text: f"q{i}" for i, text in enumerate(answered["query"].unique())}
        relevant: dict[str, dict[str, int]] = {query: {} for query in queries.values()}
        for (query, document), score in (
            answered.groupby(["query", "document"], sort=False)["score"].max().items()
        ):
            relevant[queries[query]][documents[document]] = int(score)
        found[name] = {
            "corpus": Dataset.from_dict({"id": list(documents.values()), "text": list(documents)}),
            "queries": Dataset.from_dict({"id": list(queries.values()), "text": list(queries)}),
            "relevant_docs": relevant,
            "top_ranked": None,
        }
    return {"default": found}


def _train_and_test(splits: Splits, samples: int | None, seed: int, source: str) -> Splits:
    """Return training and test rows, their labels as numbers in the order of the training labels' names.

    One file is split label by label in seeded halves, a label's odd row to train on. Of texts that
    occur several times only the first is kept: the half that is judged holds none that was trained
    on.
    """
    if "train" not in splits:
        rows = splits["test"].drop_duplicates("text")
        shuffled = rows.iloc[np.random.default_rng([seed, 1]).permutation(len(rows))]
        trained = shuffled.groupby("label").cumcount() % 2 == 0
        halves = {"train": shuffled[trained], "test": shuffled[~trained]}
        splits = {name: half.sort_index().reset_index(drop=True) for name, half in halves.items()}
    numbers = {label: i for i, label in enumerate(sorted(splits["train"]["label"].unique()))}
    known = splits["test"]["label"].isin(list(numbers))
    if samples is not None:  # the draw may have left no training row of a label
        splits = splits | {"test": splits["test"][known].reset_index(drop=True)}
    elif not known.all():
        unknown = min(splits["test"]["label"][~known])
        raise LayerscopeError(
            f"{source}: the label {unknown!r} of the test rows has no training row: add some"
        )
    return {name: rows.assign(label=rows["label"].map(numbers)) for name, rows in splits.items()}


TWO_TEXTS = {"text_a": "sentence1", "text_b": "sentence2"}
FILES = {
    "classification": FileKind(
        ("text", "label"),
        "Classification",
        "accuracy",
        _labels,
        "t2c",
        splits=("train", "test"),
        arrange=_train_and_test,
    ),
    "clustering": FileKind(
        ("text", "label"),
        "Clustering",
        "v_measure",
        _labels,
        "t2c",
        renamed={"text": "sentences", "label": "labels"},
        about=lambda rows: {
            "max_fraction_of_documents_to_embed": None,
            "max_document_to_embed": None,
            "max_documents_per_cluster": min(len(rows), MOST_CLUSTERED),
        },
    ),
    "pair-classification": FileKind(
        ("text_a", "text_b", "label"),
        "PairClassification",
        "max_ap",
        _pairs,
        "t2c",
        renamed=TWO_TEXTS | {"label": "labels"},
    ),
    "retrieval": FileKind(
        ("query", "document", "score"), "Retrieval", "ndcg_at_10", _graded, default=1, data=_search
    ),
    "sts": FileKind(
        ("text_a", "text_b", "score"),
        "STS",
        "cosine_spearman",
        _scores,
        renamed=TWO_TEXTS,
        about=lambda rows: {"min_score": rows["score"].min(), "max_score": rows["score"].max()},
    ),
}
"""Kinds by name."""

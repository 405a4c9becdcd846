"""Tasks made of a file with labels, as mteb tasks whose data are loaded, so that mteb's evaluators judge them."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from layerscope.core.errors import LayerscopeError, choices, near
from layerscope.evaluation.own_retrieval import check_documents, relevances, retrieval_data
from layerscope.inputs.tables import is_frame, table_of
from layerscope.scores.files import existing

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = {
    "classification": ("text", "label"),
    "clustering": ("text", "label"),
    "sts": ("text_a", "text_b", "score"),
    "pair-classification": ("text_a", "text_b", "label"),
    "retrieval": ("query", "document", "score"),
}
OPTIONAL = {("retrieval", "score"): 1}
"""What stands in for a column that may be missing."""
ABOUT = {
    "classification": ("AbsTaskClassification", "Classification", "accuracy"),
    "clustering": ("AbsTaskClustering", "Clustering", "v_measure"),
    "sts": ("AbsTaskSTS", "STS", "cosine_spearman"),
    "pair-classification": ("AbsTaskPairClassification", "PairClassification", "max_ap"),
    "retrieval": ("AbsTaskRetrieval", "Retrieval", "ndcg_at_10"),
}
"""mteb's class and type of each kind, and its main score."""
RENAMED = {
    "classification": {},
    "clustering": {"text": "sentences", "label": "labels"},
    "sts": {"text_a": "sentence1", "text_b": "sentence2"},
    "pair-classification": {"text_a": "sentence1", "text_b": "sentence2", "label": "labels"},
    "retrieval": {},
}
READ = (".csv", ".tsv", ".tab", ".jsonl", ".ndjson", ".json", ".parquet", ".pq")
FEWEST_PAIRS = 3
MOST_CLUSTERED = 4096
"""Rows that each of mteb's ten k-means of a file draws, with replacement."""
TRUE_FALSE = {"0": 0, "1": 1, "0.0": 0, "1.0": 1, "false": 0, "true": 1}


def is_task_file(text: str) -> bool:
    """Return whether a text is `KIND:PATH` of a task in a file, by what stands before its colon."""
    kind, colon, path = text.partition(":")
    return bool(colon and path and ("-" in kind or kind.islower()))


def task_from_file(kind: str, path: Any, samples: int | None = None, seed: int = 0) -> Any:
    """Return an mteb task made of a CSV, TSV, JSONL or Parquet file, or of a pandas frame.

    `kind` is classification or clustering (columns text, label), sts (text_a, text_b, score), pair-classification
    (text_a, text_b, label 0 or 1) or retrieval (query, document and, if given, score: a whole number, 0 for a document
    that is searched but does not answer; all documents of the file are searched for each query). Of a folder the files
    `test.*` and, for classification, `train.*` are read; one file of a classification is split in two seeded halves,
    label by label, each text once. `samples` takes that many seeded rows of each file; test rows of a label that is
    then not among the training rows are left out. The task is named after the file or folder. Raises `LayerscopeError`
    for columns that are missing and values that cannot be judged.

    >>> from layerscope.evaluation import task_from_file
    >>> task = task_from_file("classification", "reviews.csv")
    >>> task.metadata.name, task.metadata.type
    ('reviews', 'Classification')
    """
    if kind not in COLUMNS:
        raise LayerscopeError(f"task kind {kind!r} does not exist{choices(kind, COLUMNS)}")
    check_samples(samples)
    in_memory = is_frame(path)
    if not in_memory and not isinstance(path, (str, Path)):
        raise LayerscopeError(f"{kind} reads a pandas frame or a file, not a {type(path).__name__}")
    place = Path("the data frame") if in_memory else existing(path, "task file")
    files = {"test": path} if in_memory else _files(place, kind)
    splits = {name: _sampled(_read(file, kind), samples, seed) for name, file in files.items()}
    splits = {name: _checked(frame, kind, place).reset_index(drop=True) for name, frame in splits.items()}
    if kind == "classification":
        splits = splits if "train" in splits else _halves(splits, seed)
        splits = _numbered(splits if samples is None else _trained(splits), place)
    name = "frame" if in_memory else _name(place)
    return _task(kind, name, {name: frame.rename(columns=RENAMED[kind]) for name, frame in splits.items()})


def check_samples(samples: int | None) -> None:
    """Raise where `samples` is not a number of rows."""
    if samples is not None and (isinstance(samples, bool) or not isinstance(samples, int) or samples < 2):
        raise LayerscopeError(f"samples {samples!r} is not a whole number of 2 or more: leave it out for all")


def _files(place: Path, kind: str) -> dict[str, Path]:
    """Return the file of each split; the only table of a folder needs no name."""
    if not place.is_dir():
        return {"test": place}
    wanted = ("train", "test") if kind == "classification" else ("test",)
    tables = [file for file in sorted(place.iterdir()) if _suffix(file)]
    found = {name: file for name in wanted for file in tables if _name(file) == name}
    if "test" not in found:
        if len(tables) != 1:
            raise LayerscopeError(f"folder {str(place)!r} holds no test.csv (.jsonl, .parquet): name the file itself")
        found = {"test": tables[0]}
    return found


def _suffix(file: Path) -> str | None:
    """Return the suffix of a table file, without `.gz`, or None for another."""
    suffixes = [suffix.lower() for suffix in file.suffixes if suffix.lower() != ".gz"]
    return suffixes[-1] if suffixes and suffixes[-1] in READ else None


def _name(place: Path) -> str:
    """Return a name that may stand in a path: of `banking/` banking, of `tickets.csv.gz` tickets."""
    name = place.resolve().name
    suffix = _suffix(place)
    name = name[: name.lower().rindex(suffix)] if suffix and not place.is_dir() else name
    return re.sub(r"[^\w.-]+", "_", name) or "task"


def _read(file: Any, kind: str) -> pd.DataFrame:
    frame: pd.DataFrame | None = table_of(file)
    if frame is None:
        raise LayerscopeError(f"task file {file} is of no known kind: give CSV, TSV, JSONL or Parquet")
    file = "the data frame" if is_frame(file) else file
    frame = frame.rename(columns=lambda name: str(name).strip())
    for column in COLUMNS[kind]:
        if list(frame).count(column) > 1:
            raise LayerscopeError(f"{file} has two columns named {column!r}: rename one")
        if column not in frame and (kind, column) in OPTIONAL:
            frame[column] = OPTIONAL[kind, column]
        if column not in frame:
            hint = near(column, list(frame)) or ":"
            raise LayerscopeError(f"{file} has no column {column!r}{hint} {kind} reads {', '.join(COLUMNS[kind])}")
    return frame[list(COLUMNS[kind])]


def _sampled(frame: pd.DataFrame, samples: int | None, seed: int) -> pd.DataFrame:
    if samples is None or len(frame) <= samples:
        return frame
    return frame.iloc[np.sort(np.random.default_rng(seed).choice(len(frame), samples, replace=False))]


def _checked(frame: pd.DataFrame, kind: str, place: Path) -> pd.DataFrame:
    """Return texts as texts, and scores or labels as what the kind judges."""
    for column in COLUMNS[kind][:-1]:
        empty = np.flatnonzero(frame[column].isna() | (frame[column].astype(str).str.strip() == ""))
        if len(empty):
            row = frame.index[empty[0]] + 1
            raise LayerscopeError(f"{place}: row {row} has an empty {column}: fill it in, or leave the row out")
    frame = frame.astype({column: str for column in COLUMNS[kind][:-1]})
    if kind == "sts":
        return frame.assign(score=_scores(frame["score"], place))
    if kind == "retrieval":
        check_documents(frame, place)
        return frame.assign(score=relevances(frame["score"], place))
    labels = frame["label"].astype(str).str.strip()
    empty = np.flatnonzero(frame["label"].isna() | (labels == ""))
    if len(empty):
        raise LayerscopeError(
            f"{place}: row {frame.index[empty[0]] + 1} has no label: fill it in, or leave the row out"
        )
    _check_labels(labels, place)
    return frame.assign(label=_zero_or_one(labels, place) if kind == "pair-classification" else labels)


def _scores(column: pd.Series, place: Path) -> pd.Series:
    import pandas as pd

    scores = pd.to_numeric(column, errors="coerce").astype("float64")
    wrong = np.flatnonzero(~np.isfinite(scores))
    if len(wrong):
        row, value = column.index[wrong[0]] + 1, column.iloc[wrong[0]]
        raise LayerscopeError(f"{place}: row {row} has the score {value!r}, which is not a number: leave it out")
    if len(scores) < FEWEST_PAIRS or scores.nunique() < 2:
        raise LayerscopeError(f"{place} has {len(scores)} pairs and {scores.nunique()} scores: give more to rank")
    return scores


def _check_labels(labels: pd.Series, place: Path) -> None:
    if labels.nunique() < 2:
        raise LayerscopeError(f"{place}: every row has the label {labels.iloc[0]!r}: give two classes or more")
    if labels.nunique() == len(labels):
        raise LayerscopeError(f"{place}: every row has a label of its own: give a column of classes as label")


def _zero_or_one(labels: pd.Series, place: Path) -> pd.Series:
    numbers = labels.str.lower().map(TRUE_FALSE)
    if numbers.isna().any():
        value = labels[numbers.isna()].iloc[0]
        raise LayerscopeError(f"{place}: the label {value!r} is neither 0 nor 1: 1 is a pair that belongs together")
    return numbers.astype("int64")


def _halves(splits: dict[str, pd.DataFrame], seed: int) -> dict[str, pd.DataFrame]:
    """Split one frame into train and test, every label in seeded halves; a label's odd row is trained on.

    Of texts that occur several times only the first is kept: the half that is judged holds none that was trained on.
    """
    frame = splits["test"].drop_duplicates("text")
    shuffled = frame.iloc[np.random.default_rng([seed, 1]).permutation(len(frame))]
    trained = shuffled.groupby("label").cumcount() % 2 == 0
    return {
        "train": shuffled[trained].sort_index().reset_index(drop=True),
        "test": shuffled[~trained].sort_index().reset_index(drop=True),
    }


def _trained(splits: dict[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """Leave out test rows of labels that the draw left no training row of."""
    known = splits["test"]["label"].isin(set(splits["train"]["label"]))
    return splits | {"test": splits["test"][known].reset_index(drop=True)}


def _numbered(splits: dict[str, pd.DataFrame], place: Path) -> dict[str, pd.DataFrame]:
    """Return labels as numbers, in the order of the training labels' names; one that was not trained is an error."""
    numbers = {label: i for i, label in enumerate(sorted(splits["train"]["label"].unique()))}
    unknown = sorted(set(splits["test"]["label"]) - set(numbers))
    if unknown:
        raise LayerscopeError(f"{place}: the label {unknown[0]!r} of the test rows has no training row: add some")
    return {name: frame.assign(label=frame["label"].map(numbers)) for name, frame in splits.items()}


def _task(kind: str, name: str, splits: dict[str, pd.DataFrame]) -> Any:
    import mteb.abstasks as abstasks
    from datasets import Dataset, DatasetDict
    from mteb.abstasks.task_metadata import TaskMetadata

    base, its_type, main_score = ABOUT[kind]
    contents = "".join(f"{split}{frame.to_json(orient='split')}" for split, frame in sorted(splits.items()))
    revision = hashlib.sha256(f"{kind}{contents}".encode()).hexdigest()[:40]
    metadata = TaskMetadata(
        name=name,
        description=f"{kind} of the user's own file",
        type=its_type,
        dataset={"path": name, "revision": revision},
        eval_splits=["test"],
        eval_langs=["eng-Latn"],  # mteb asks for one; nothing reads it
        main_score=main_score,
        category="t2c" if "lassification" in its_type or its_type == "Clustering" else "t2t",
        modalities=["text"],
    )
    members: dict[str, Any] = {"metadata": metadata}
    if kind == "clustering":
        members |= {"max_fraction_of_documents_to_embed": None, "max_document_to_embed": None}
        members["max_documents_per_cluster"] = min(len(splits["test"]), MOST_CLUSTERED)
    if kind == "sts":
        scores = splits["test"]["score"]
        members |= {"min_score": scores.min(), "max_score": scores.max()}
    task = type(f"Own{its_type}", (getattr(abstasks, base),), members)()
    if kind == "retrieval":
        task.dataset = {"default": {split: retrieval_data(frame) for split, frame in splits.items()}}
    else:
        task.dataset = DatasetDict(
            {split: Dataset.from_pandas(frame, preserve_index=False) for split, frame in splits.items()}
        )
    task.data_loaded = True
    return task

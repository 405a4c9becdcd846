"""Tasks made of a file with labels, as mteb tasks whose data are loaded, so that mteb's evaluators judge them."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from layerscope.core.errors import LayerscopeError, choices, near
from layerscope.core.files import existing
from layerscope.core.option_kinds import SEED, Whole
from layerscope.core.options import checked
from layerscope.evaluation.kind import FileKind, Splits, refuse
from layerscope.evaluation.kinds import FILES
from layerscope.inputs.tables import is_frame, table_of, table_suffix

if TYPE_CHECKING:
    import pandas as pd


def task_from_file(
    kind: str, path: Any, samples: Annotated[int | None, Whole(2)] = None, seed: Annotated[int, SEED] = 0
) -> Any:
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
    checked(task_from_file, locals())
    if kind not in FILES:
        raise LayerscopeError(f"task kind {kind!r} does not exist{choices(kind, FILES)}")
    about, in_memory = FILES[kind], is_frame(path)
    if not in_memory and not isinstance(path, (str, Path)):
        raise LayerscopeError(f"{kind} reads a pandas frame or a file, not a {type(path).__name__}")
    file = None if in_memory else existing(path, "task file")
    source, files = ("the data frame", {"test": path}) if file is None else (str(file), _files(file, about))
    splits = {}
    for name, data in files.items():
        rows = _read(data, about)
        if samples is not None and len(rows) > samples:
            rows = rows.iloc[np.sort(np.random.default_rng(seed).choice(len(rows), samples, replace=False))]
        splits[name] = _checked(rows, about, source).reset_index(drop=True)
    splits = about.arrange(splits, samples, seed, source)
    name = "frame" if file is None else _name(file)
    return _task(about, name, {split: rows.rename(columns=dict(about.renamed)) for split, rows in splits.items()})


def _files(path: Path, kind: FileKind) -> dict[str, Path]:
    """Return the file of each split; the only table of a folder needs no name."""
    if not path.is_dir():
        return {"test": path}
    tables = [file for file in sorted(path.iterdir()) if table_suffix(file)]
    found = {name: file for name in kind.splits for file in tables if _name(file) == name}
    if "test" not in found:
        if len(tables) != 1:
            raise LayerscopeError(f"folder {str(path)!r} holds no test.csv (.jsonl, .parquet): name the file itself")
        found = {"test": tables[0]}
    return found


def _name(path: Path) -> str:
    """Return a name that may stand in a path: of `banking/` banking, of `tickets.csv.gz` tickets."""
    name, suffix = path.resolve().name, table_suffix(path)
    return re.sub(r"[^\w.-]+", "_", name[: name.lower().rindex(suffix)] if suffix else name) or "task"


def _read(data: Any, kind: FileKind) -> pd.DataFrame:
    """Return the columns of a table that the kind reads."""
    frame: pd.DataFrame | None = table_of(data)
    if frame is None:
        raise LayerscopeError(f"task file {data} is of no known kind: give CSV, TSV, JSONL or Parquet")
    source = "the data frame" if is_frame(data) else data
    frame = frame.rename(columns=lambda name: str(name).strip())
    if kind.default is not None and kind.columns[-1] not in frame:
        frame[kind.columns[-1]] = kind.default
    for column in kind.columns:
        if list(frame).count(column) > 1:
            raise LayerscopeError(f"{source} has two columns named {column!r}: rename one")
        if column not in frame:
            hint = near(column, list(frame)) or ":"
            raise LayerscopeError(
                f"{source} has no column {column!r}{hint} {kind.name} reads {', '.join(kind.columns)}"
            )
    return frame[list(kind.columns)]


def _checked(rows: pd.DataFrame, kind: FileKind, source: str) -> pd.DataFrame:
    """Return texts as texts, and scores or labels as what the kind judges."""
    texts = list(kind.columns[:-1])
    for name in texts:
        empty = rows[name].isna() | (rows[name].astype(str).str.strip() == "")
        refuse(empty, rows[name], source, "fill it in, or leave the row out")
    return kind.check(rows.astype(dict.fromkeys(texts, str)), source)


def _task(kind: FileKind, name: str, splits: Splits) -> Any:
    import mteb.abstasks as abstasks
    from mteb.abstasks.task_metadata import TaskMetadata

    contents = "".join(f"{split}{rows.to_json(orient='split')}" for split, rows in sorted(splits.items()))
    revision = hashlib.sha256(f"{kind.name}{contents}".encode()).hexdigest()[:40]
    metadata = TaskMetadata(
        name=name,
        description=f"{kind.name} of the user's own file",
        type=kind.type,
        dataset={"path": name, "revision": revision},
        eval_splits=["test"],
        eval_langs=["eng-Latn"],  # mteb asks for one; nothing reads it
        main_score=kind.main_score,
        category=kind.category,
        modalities=["text"],
    )
    members = {"metadata": metadata, **kind.about(splits["test"])}
    task = type(f"Own{kind.type}", (getattr(abstasks, f"AbsTask{kind.type}"),), members)()
    task.dataset = kind.data(splits)
    task.data_loaded = True
    return task

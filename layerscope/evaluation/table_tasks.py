"""Tasks of mteb made of your own tables of texts."""

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from layerscope.core import LayerscopeError, existing, require
from layerscope.inputs.columns import missing
from layerscope.inputs.drawing import drawn_rows
from layerscope.inputs.tables import is_frame, table_of, table_suffix
from layerscope.scores.files import refuse_columns, refuse_rows

Splits = dict[str, pd.DataFrame]
TWO_TEXTS = {"text_a": "sentence1", "text_b": "sentence2"}
"""What mteb calls the texts of a pair."""


def as_data_sets(splits: Splits) -> Any:
    """Return splits as most tasks of mteb hold them."""
    from datasets import Dataset, DatasetDict

    return DatasetDict(
        {
            name: Dataset.from_pandas(rows, preserve_index=False)
            for name, rows in splits.items()
        }
    )


def refuse_empty(column: pd.Series, source: str) -> None:
    """Raise for the first row of a column that holds nothing."""
    empty = pd.Series(missing(column.tolist()))
    refuse_rows(empty, column, source, "fill it in, or leave the row out")


def class_labels(rows: pd.DataFrame, source: str) -> pd.DataFrame:
    """Return rows with their labels as texts, which must be two classes or more."""
    refuse_empty(rows["label"], source)
    labels = rows["label"].astype(str).str.strip()
    if labels.nunique() < 2:
        raise LayerscopeError(
            f"{source}: every row has the label {labels.iloc[0]!r}: give two classes or more"
        )
    if labels.nunique() == len(labels):
        raise LayerscopeError(
            f"{source}: every row has a different label: give a column of classes as label"
        )
    return rows.assign(label=labels)


@dataclass(frozen=True)
class TableKind:
    """A kind of task on a table of texts, judged by mteb.

    `texts` are its columns of texts, `label` that of labels or scores, if it has one, for which
    `default` stands in where it is not there; `renamed` says what mteb calls them. `type`,
    `main_score` and `category` are mteb's: its class is `AbsTask` followed by the type. `check`
    returns the rows of a file as they are judged, and refuses those that cannot be; `arrange` makes
    the splits of them, by `samples` and `seed`; the last argument of both names the data in errors.
    `attributes` are those of mteb's task, `data` makes its data. `note` and `score` are words for
    the documentation.
    """

    name: str
    texts: tuple[str, ...]
    type: str
    main_score: str
    label: str = ""
    default: int | None = None
    check: Callable[[pd.DataFrame, str], pd.DataFrame] = lambda rows, source: rows
    category: str = "t2t"
    splits: tuple[str, ...] = ("test",)
    renamed: Mapping[str, str] = field(default_factory=dict)
    arrange: Callable[[Splits, int | None, int, str], Splits] = lambda splits, *_: (
        splits
    )
    attributes: Callable[[pd.DataFrame], dict[str, Any]] = lambda rows: {}
    data: Callable[[Splits], Any] = as_data_sets
    note: str = ""
    score: str = ""

    @property
    def columns(self) -> list[str]:
        """The columns of the table."""
        if self.label:
            return [*self.texts, self.label]
        return list(self.texts)

    @property
    def reads(self) -> str:
        """What its data are."""
        columns = f"a table with the columns {', '.join(self.columns)}"
        if self.note:
            return f"{columns}; {self.note}"
        return columns

    def open(self, data: Any, draw: Any) -> list[Any]:
        """Return mteb's task of a table: a file, a folder with test.* or a frame."""
        require("evaluation", f"a task of the kind {self.name}")
        source = "the data frame"
        name = "frame"
        tables: dict[str, Any] = {"test": data}
        if isinstance(data, (str, Path)):
            file = existing(data, "task file")
            source = str(file)
            name = task_name(file)
            tables = _files(file, self)
        elif not is_frame(data):
            raise LayerscopeError(
                f"{self.name} reads a pandas frame or a file, not a {type(data).__name__}"
            )
        splits = {}
        for split, table in tables.items():
            rows = _read(table, self)
            n = draw.samples or len(rows)
            drawn, _ = drawn_rows(len(rows), None, n, draw.seed)
            rows = rows.iloc[drawn]
            for column in self.texts:
                refuse_empty(rows[column], source)
            rows = self.check(rows.astype(dict.fromkeys(self.texts, str)), source)
            splits[split] = rows.reset_index(drop=True)
        splits = self.arrange(splits, draw.samples, draw.seed, source)
        for split, rows in splits.items():
            splits[split] = rows.rename(columns=dict(self.renamed))
        return [_task(self, name, splits)]


def _files(path: Path, kind: TableKind) -> dict[str, Path]:
    """Return the file of each split."""
    if not path.is_dir():
        return {"test": path}
    splits = {}
    for file in sorted(path.iterdir()):
        name = task_name(file)
        if table_suffix(file) and name in kind.splits:
            splits[name] = file
    if "test" not in splits:
        raise LayerscopeError(
            f"folder {str(path)!r} holds no test.csv (.jsonl, .parquet): name the file itself"
        )
    return splits


def task_name(path: Path) -> str:
    """Return a name that may stand in a path: of `banking/` banking, of `tickets.csv.gz` tickets."""
    name = path.resolve().name
    suffix = table_suffix(path)
    if suffix:
        name = name[: name.lower().rindex(suffix)]
    return re.sub(r"[^\w.-]+", "_", name) or "task"


def _read(data: Any, kind: TableKind) -> pd.DataFrame:
    """Return the columns of a table that the kind reads."""
    frame: pd.DataFrame | None = table_of(data)
    if frame is None:
        raise LayerscopeError(
            f"task file {data} has an unknown format: give CSV, TSV, JSONL or Parquet"
        )
    frame = frame.rename(columns=str.strip)
    is_optional = kind.default is not None and kind.label not in frame
    needed = list(kind.texts) if is_optional else kind.columns
    refuse_columns(frame, needed, "the data frame" if is_frame(data) else data)
    return frame.reindex(columns=kind.columns, fill_value=kind.default)


def _task(kind: TableKind, name: str, splits: Splits) -> Any:
    """Return mteb's task of a kind on these splits, known by a digest of them."""
    import mteb.abstasks as abstasks
    from mteb.abstasks.task_metadata import TaskMetadata

    contents = [kind.name]
    for split in sorted(splits):
        contents += [split, str(splits[split].to_json(orient="split"))]
    digest = hashlib.sha256("".join(contents).encode()).hexdigest()
    metadata = TaskMetadata(
        name=name,
        description=f"{kind.name} of the user's own file",
        type=kind.type,
        dataset={"path": name, "revision": digest[:40]},
        eval_splits=["test"],
        eval_langs=["eng-Latn"],  # mteb asks for one; nothing reads it
        main_score=kind.main_score,
        category=kind.category,
        modalities=["text"],
    )
    members = {"metadata": metadata, **kind.attributes(splits["test"])}
    base = getattr(abstasks, f"AbsTask{kind.type}")
    task = type(f"Own{kind.type}", (base,), members)()
    task.dataset = kind.data(splits)
    task.data_loaded = True
    return task

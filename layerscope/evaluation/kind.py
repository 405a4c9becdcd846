"""What a kind of task on your own data is: a record in a file of `layerscope.evaluation.kinds`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from layerscope.core.errors import LayerscopeError
from layerscope.inputs import Corpus
from layerscope.probes.scores import ProbeScore

if TYPE_CHECKING:
    import pandas as pd

    from layerscope.evaluation.probing.states import Pooled, Tokens
    from layerscope.inputs.tagged import Tagged

Splits = dict[str, "pd.DataFrame"]


def datasets_of(splits: Splits) -> Any:
    """Return splits as most tasks of mteb hold them."""
    from datasets import Dataset, DatasetDict

    return DatasetDict({name: Dataset.from_pandas(rows, preserve_index=False) for name, rows in splits.items()})


@dataclass(frozen=True)
class FileKind:
    """A kind of task on a table of texts, judged by mteb.

    `columns` are those of the table, its label or score last, for which `default` stands in where it is not there;
    `renamed` says what mteb calls them. `type` and `main_score` are mteb's. `check` returns the rows of a file as they
    are judged, and refuses those that cannot be; `arrange` then makes the splits of them, by `samples` and `seed`.
    `about` gives attributes of mteb's task, `data` its data. The last argument of both checks names the data in errors.
    """

    name: str
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
    data: Callable[[Splits], Any] = datasets_of


@dataclass(frozen=True)
class ProbeKind:
    """A kind of probe: what it is called beside the name of its data, the states it reads, and its function.

    `probe` takes what `layer` of these states returns, and a seed.
    """

    name: str
    title: str
    states: type[Pooled | Tokens]
    probe: Callable[..., ProbeScore]


@dataclass(frozen=True)
class ProbeTask:
    """One probe and its data: labelled samples, or for a token probe tagged sentences."""

    kind: ProbeKind
    data: Corpus | Tagged

    @property
    def name(self) -> str:
        """What the task is called in tables."""
        return f"{self.data.name} ({self.kind.title})"


def checked_labels(rows: pd.DataFrame, source: str) -> pd.DataFrame:
    """Return rows with their labels as texts; raises where a label is missing, or they are not two classes or more."""
    labels = rows["label"].astype(str).str.strip()
    refuse(rows["label"].isna() | (labels == ""), rows["label"], source, "fill it in, or leave the row out")
    if labels.nunique() < 2:
        raise LayerscopeError(f"{source}: every row has the label {labels.iloc[0]!r}: give two classes or more")
    if labels.nunique() == len(labels):
        raise LayerscopeError(f"{source}: every row has a label of its own: give a column of classes as label")
    return rows.assign(label=labels)


def numbers(column: pd.Series) -> pd.Series:
    """Return a column as numbers, NaN where it holds none."""
    import pandas as pd

    return pd.to_numeric(column, errors="coerce").astype("float64")


def refuse(wrong: pd.Series, column: pd.Series, source: str, mend: str) -> None:
    """Raise where a value of a column is wrong, or missing."""
    if wrong.any():
        row = int(np.flatnonzero(wrong.to_numpy())[0])
        value = column.iloc[row]
        empty = value != value or value is None or not str(value).strip()
        what = f"no {column.name}" if empty else f"the {column.name} {value!r}"
        raise LayerscopeError(f"{source}: row {column.index[row] + 1} has {what}: {mend}")

"""States that another engine wrote, with what is known of their samples: no model, and never all of them at once."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from layerscope.core import LayerscopeError, count, folder_name, listed
from layerscope.inputs.columns import (
    LABEL_COLUMNS,
    TEXT_COLUMNS,
    Columns,
    choose_column,
    text_corpus,
)
from layerscope.inputs.corpus import Corpus, row_numbers
from layerscope.inputs.samples import Modality, Window, content
from layerscope.inputs.tables import table_of

if TYPE_CHECKING:
    from torch import Tensor

ID = "id"
"""The column of a table that holds the names of the samples."""


@dataclass(frozen=True, eq=False)
class States:
    """The states of N samples as they lie in a folder or file.

    `read` takes numbers of samples and returns a tensor for each, `[layers, T, D]` where `tokens`
    holds the token ids `[T]` of every sample, else `[layers, D]`. `layers` are their numbers in the
    model, rising: 0 is the embedding output, k the output of block k. `table` has a row for each
    sample.
    """

    path: Path
    names: tuple[str, ...]
    layers: tuple[int, ...]
    width: int
    read: Callable[[Sequence[int]], "list[Tensor]"]
    tokens: Sequence[np.ndarray[Any, Any]] | None = None
    table: Any = None
    notes: tuple[str, ...] = ()
    about: Mapping[str, Any] = field(default_factory=dict)
    """What is known of them beside: `model` (its name), `depth`, `site`, `pooling`, whether it is `causal`, and the
    `fingerprint` of the images or sounds that all of them are of."""


@dataclass(frozen=True)
class StoredSample(Window):
    """A sample by its number among the states.

    Text and token ids are empty where they are not known.
    """

    number: int


@dataclass(frozen=True, eq=False)
class StoredSamples(Sequence[Any]):
    """The samples of states in the order of their `numbers`, made when they are looked at."""

    states: States
    numbers: Sequence[int]
    texts: Sequence[str] | None

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, index: Any) -> Any:
        number = self.numbers[index]
        ids = ()
        text = ""
        if self.states.tokens is not None:
            ids = tuple(self.states.tokens[number].tolist())
        if self.texts is not None:
            text = self.texts[index]
        return StoredSample(text, ids, number)

    def stored(self, index: int) -> bytes:
        """Return what tells a sample from others: its text, else its token ids, else its states."""
        if self.texts is not None:
            return content(self.texts, index)
        if self.states.tokens is not None:
            return self.states.tokens[self.numbers[index]].tobytes()
        (states,) = self.states.read([self.numbers[index]])
        return bytes(states.float().numpy().tobytes())


def corpus_of(
    states: States, data: Any, labels: Sequence[Any] | None, columns: Columns
) -> Corpus:
    """Return the samples of states, with the texts and labels of the table `data`, or of the one beside them.

    Samples whose names are in a column `id` come in the order of the table, as in a profile of it;
    without that column rows are taken in the order of the states. Rows with an empty text or label
    are left out. Raises `LayerscopeError` for data that are no table, and for rows or labels of
    another number.
    """
    where = str(states.path)
    total = len(states.names)
    if labels is not None and len(labels) != total:
        raise LayerscopeError(
            f"{len(labels):,} labels for the states of {count(total, 'sample')}: give one each"
        )
    path, frame = _table(states, data)
    notes = []
    text = None
    label = None
    cells = labels
    texts = None
    numbers = list(range(total))
    if frame is None:
        columns.refuse(where)
    else:
        where = str(path)
        frame, numbers = _matched(frame, states, where)
        by_order = data is not None and ID not in frame
        if by_order and states.names != row_numbers(total):
            ends = f"{states.names[0]} first and {states.names[-1]} last"
            notes.append(
                f"rows of the table are paired with the states in order, {ends} (files by name): add a column `id` "
                f"with these names if the rows are in another order"
            )
        text = choose_column(list(frame.columns), columns.text, TEXT_COLUMNS, where)
        label = choose_column(list(frame.columns), columns.label, LABEL_COLUMNS, where)
        if text is not None:
            texts = frame[text].tolist()
        if label is not None and labels is None:
            cells = frame[label].tolist()
    name = folder_name(path.stem)
    names = [states.names[number] for number in numbers]
    chosen = Columns(text, label, labels is not None or columns.label is not None)
    read = text_corpus(texts or names, name, where, cells, chosen, notes)
    modality: Modality = "tensor"
    if texts or states.tokens:
        modality = "text"
    if texts is not None:
        texts = [*map(str, texts)]
    samples = StoredSamples(states, numbers, texts)
    whole = Corpus(name, modality, samples, names, notes=read.notes)
    rows = [*map(int, read.names)]
    return replace(whole.take(rows), labels=read.labels)


def _table(states: States, data: Any) -> tuple[Path, Any]:
    """Return the table of the samples, and where it lies."""
    if data is None:
        return states.path, states.table
    frame = table_of(data)
    if frame is None:
        raise LayerscopeError(
            "`data` beside `states` is a table with one row per sample: give CSV, TSV, JSONL or Parquet"
        )
    if isinstance(data, (str, Path)):
        return Path(data), frame
    return states.path, frame


def _matched(frame: Any, states: States, where: str) -> tuple[Any, list[int]]:
    """Return the rows of a table that are samples, in its order, and the number of each among the states."""
    import pandas as pd

    names = list(states.names)
    if ID not in frame:
        if len(frame) == len(names):
            return frame, list(range(len(names)))
        raise LayerscopeError(
            f"{where} has {count(len(frame), 'row')} for the states of {count(len(names), 'sample')}: give a row "
            f"for each, or their names, such as {names[0]}, in a column `id`"
        )
    frame = frame.set_index(frame[ID].astype(str))
    missing = [name for name in names if name not in frame.index]
    if missing:
        raise LayerscopeError(
            f"{where}: column 'id' has no row for {listed(missing)}: give the name of each sample once"
        )
    if not frame.index.is_unique:
        raise LayerscopeError(
            f"{where}: column 'id' has a name twice: give the name of each sample once"
        )
    frame = frame[frame.index.isin(names)]
    numbers = pd.Index(names).get_indexer(frame.index).tolist()
    return frame.reset_index(drop=True), numbers

"""How many texts a task of mteb has, before any of them is embedded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

INPUTS = ("input_column_name", "input1_column_name", "input2_column_name", "column_names")
"""Where mteb's task classes tell the columns of their texts."""


def most_texts(task: Any) -> int:
    """Return the texts of a loaded task at most: repeated ones count each time, and all that it may draw from."""
    splits = {*task.eval_splits, *([task.train_split] if hasattr(task, "train_split") else [])}
    total = 0
    for subset in _subsets(task):
        for name, rows in subset.items():
            if name in splits:
                total += sum(_texts(task, table, name) for table in _tables(rows))
    return total


def _subsets(task: Any) -> Iterator[Any]:
    """Yield the data of each subset by split; a task without subsets is one."""
    chosen = [task.dataset[name] for name in task.hf_subsets or [] if name in task.dataset]
    yield from chosen or [task.dataset]


def _tables(rows: Any) -> list[Any]:
    """Return a split's tables: of a retrieval queries and corpus."""
    return [rows["queries"], rows["corpus"]] if isinstance(rows, dict) else [rows]


def _texts(task: Any, table: Any, split: str) -> int:
    columns = [name for name in _columns(task) if name in table.column_names]
    rows = len(table)
    if split == getattr(task, "train_split", None) and split not in task.eval_splits:
        labels = len(set(table[task.label_column_name]))
        rows = min(rows, labels * task.samples_per_label * task.n_experiments)
    if not columns:  # a corpus, queries, or a kind of task of its own
        return rows
    return sum(_in_column(table, name, rows) for name in columns)


def _columns(task: Any) -> list[str]:
    found: list[str] = []
    for attribute in INPUTS:
        named = getattr(task, attribute, None) or ()
        found += [named] if isinstance(named, str) else list(named)
    return found


def _in_column(table: Any, column: str, rows: int) -> int:
    """Return the texts in a column, whose cells may be lists of texts."""
    if len(table) and isinstance(table[0][column], (list, tuple)):
        return sum(map(len, table[column]))
    return rows

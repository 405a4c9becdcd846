"""Classes of texts, learnt from few samples of each by mteb's logistic regression."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from layerscope.core.errors import LayerscopeError
from layerscope.evaluation.kind import FileKind, Splits, checked_labels

if TYPE_CHECKING:
    import pandas as pd


def _arrange(splits: Splits, samples: int | None, seed: int, source: str) -> Splits:
    """Return training and test rows, their labels as numbers in the order of the training labels' names."""
    splits = splits if "train" in splits else _halves(splits["test"], seed)
    numbers = {label: i for i, label in enumerate(sorted(splits["train"]["label"].unique()))}
    known = splits["test"]["label"].isin(list(numbers))
    if samples is not None:  # the draw may have left no training row of a label
        splits = splits | {"test": splits["test"][known].reset_index(drop=True)}
    elif not known.all():
        unknown = min(splits["test"]["label"][~known])
        raise LayerscopeError(f"{source}: the label {unknown!r} of the test rows has no training row: add some")
    return {name: rows.assign(label=rows["label"].map(numbers)) for name, rows in splits.items()}


def _halves(rows: pd.DataFrame, seed: int) -> Splits:
    """Split rows into train and test, every label in seeded halves; a label's odd row is trained on.

    Of texts that occur several times only the first is kept: the half that is judged holds none that was trained on.
    """
    rows = rows.drop_duplicates("text")
    shuffled = rows.iloc[np.random.default_rng([seed, 1]).permutation(len(rows))]
    trained = shuffled.groupby("label").cumcount() % 2 == 0
    halves = {"train": shuffled[trained], "test": shuffled[~trained]}
    return {name: half.sort_index().reset_index(drop=True) for name, half in halves.items()}


KIND = FileKind(
    "classification", ("text", "label"), "Classification", "accuracy", checked_labels, category="t2c",
    splits=("train", "test"), arrange=_arrange,
)  # fmt: skip

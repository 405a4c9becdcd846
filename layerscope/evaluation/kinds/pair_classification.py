"""Pairs of texts that belong together or not, separated by a threshold of similarity."""

from __future__ import annotations

from typing import TYPE_CHECKING

from layerscope.evaluation.kind import FileKind, checked_labels, refuse

if TYPE_CHECKING:
    import pandas as pd

TRUE_FALSE = {"0": 0, "1": 1, "0.0": 0, "1.0": 1, "false": 0, "true": 1}


def _check(rows: pd.DataFrame, source: str) -> pd.DataFrame:
    rows = checked_labels(rows, source)
    labels = rows["label"].str.lower().map(TRUE_FALSE)
    refuse(labels.isna(), rows["label"], source, "give 1 for a pair that belongs together, else 0")
    return rows.assign(label=labels.astype("int64"))


KIND = FileKind(
    "pair-classification", ("text_a", "text_b", "label"), "PairClassification", "max_ap", _check, category="t2c",
    renamed={"text_a": "sentence1", "text_b": "sentence2", "label": "labels"},
)  # fmt: skip

"""Pairs of texts that belong together or do not, as mteb judges them: by the similarity of the two vectors."""

import pandas as pd

from layerscope.evaluation.table_tasks import TWO_TEXTS, TableKind, class_labels
from layerscope.scores.files import refuse_rows

TRUE_FALSE = {"0": 0, "1": 1, "0.0": 0, "1.0": 1, "false": 0, "true": 1}


def true_or_false(rows: pd.DataFrame, source: str) -> pd.DataFrame:
    """Return rows with their labels as 0 or 1."""
    rows = class_labels(rows, source)
    labels = rows["label"].str.lower().map(TRUE_FALSE)
    mend = "give 1 for a pair that belongs together, else 0"
    refuse_rows(labels.isna(), rows["label"], source, mend)
    return rows.assign(label=labels.astype("int64"))


KIND = TableKind(
    "pair-classification",
    texts=("text_a", "text_b"),
    label="label",
    type="PairClassification",
    main_score="max_ap",
    category="t2c",
    renamed=TWO_TEXTS | {"label": "labels"},
    note="label is 0 or 1",
    score="average precision",
    check=true_or_false,
)

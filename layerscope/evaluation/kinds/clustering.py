"""Clustering of texts, as mteb judges it: k-means on ten draws, against the labels."""

from typing import Any

import pandas as pd

from layerscope.evaluation.table_tasks import TableKind, class_labels

MOST_CLUSTERED = 4096
"""Rows that each of mteb's ten k-means draws, with replacement."""


def limits(rows: pd.DataFrame) -> dict[str, Any]:
    """Return the attributes by which mteb's task draws its rows."""
    return {
        "max_fraction_of_documents_to_embed": None,
        "max_document_to_embed": None,
        "max_documents_per_cluster": min(len(rows), MOST_CLUSTERED),
    }


KIND = TableKind(
    "clustering",
    texts=("text",),
    label="label",
    type="Clustering",
    main_score="v_measure",
    category="t2c",
    renamed={"text": "sentences", "label": "labels"},
    score="V-measure",
    check=class_labels,
    attributes=limits,
)

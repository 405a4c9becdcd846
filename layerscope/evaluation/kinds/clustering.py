"""Classes of texts, found again by mteb's k-means."""

from layerscope.evaluation.kind import FileKind, checked_labels

MOST = 4096
"""Rows that each of mteb's ten k-means draws, with replacement."""

KIND = FileKind(
    "clustering", ("text", "label"), "Clustering", "v_measure", checked_labels, category="t2c",
    renamed={"text": "sentences", "label": "labels"},
    about=lambda rows: {
        "max_fraction_of_documents_to_embed": None, "max_document_to_embed": None,
        "max_documents_per_cluster": min(len(rows), MOST),
    },
)  # fmt: skip

"""What each sample contributes to a score of mteb: values whose mean is the score and whose spread is its error.

Accuracy and nDCG are means over samples. Spearman's correlation is not: there the value of a sample is
the score plus the sample's influence, which is how the score moves with the weight of that sample.
With influences the standard error of a mean is that of the infinitesimal jackknife (Jaeckel 1972),
and two layers are paired sample by sample, as for a mean. Training draws of a classification are
kept fixed: its error is one over test samples. Other scores have no values by sample, and no error.
"""

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from layerscope.core.rank_correlation import Floats, spearman_by_sample
from layerscope.scores.probe_results import BY_SAMPLE, packed

CUT = 10
ROUNDED = 1e-5
"""How far mteb rounds its scores of retrieval."""


def _accuracy(task: Any, predictions: Any, rows: Any) -> Floats:
    """Return the share of a classification's draws in which each sample is right."""
    labels = np.asarray(rows[task.label_column_name][:])
    return np.asarray((np.asarray(predictions) == labels).mean(0))


def _spearman(_: Any, predictions: Any, rows: Any) -> Floats:
    """Return the values of pairs, whose mean is the correlation of cosines and scores."""
    labels = np.asarray(rows["score"][:], dtype=np.float64)
    cosines = np.asarray(predictions["cosine_scores"], dtype=np.float64)
    return spearman_by_sample(labels, cosines)


def _ndcg(_: Any, predictions: Mapping[str, Mapping[str, float]], rows: Any) -> Floats:
    """Return nDCG@10 of each query, in the order of their names; of ties the last document leads, as in trec_eval."""
    discounts = 1 / np.log2(np.arange(2, CUT + 2))
    values = []
    for query in sorted(predictions):
        scores = predictions[query]
        relevant = rows["relevant_docs"][query]
        ranked = sorted(scores, key=lambda name: (scores[name], name), reverse=True)
        gains = [relevant.get(name, 0) for name in ranked[:CUT]]
        ideal = sorted(relevant.values(), reverse=True)[:CUT]
        best = ideal @ discounts[: len(ideal)]
        values.append(gains @ discounts[: len(gains)] / best)
    return np.array(values)


Measure = Callable[[Any, Any, Any], Floats]
"""What computes values from a task, from what mteb predicted, and from the rows of a split."""
MEASURES: dict[str, Measure] = {
    "accuracy": _accuracy,
    "cosine_spearman": _spearman,
    "ndcg_at_10": _ndcg,
}
"""Measures by the main score of a task of mteb."""


def add_values(task: Any, result: Any, path: Path) -> None:
    """Add to a `TaskResult` of mteb the values of its samples, from the file of predictions that mteb wrote.

    Only values whose mean is mteb's own score are added: a task that is laid out or scored in
    another way has none.
    """
    measure = MEASURES.get(task.metadata.main_score)
    if measure is None or not path.is_file():
        return
    predictions = json.loads(path.read_text(encoding="utf-8"))
    for split, entries in result.scores.items():
        for entry in entries:
            if not math.isfinite(entry["main_score"]):
                continue
            subset = entry["hf_subset"]
            data = task.dataset.get(subset, task.dataset)
            try:
                values = measure(task, predictions[subset][split], data[split])
            # a layout of the task's own, such as several labels a row
            except Exception:
                continue
            if len(values) > 1 and abs(values.mean() - entry["main_score"]) <= ROUNDED:
                entry[BY_SAMPLE] = packed(values)

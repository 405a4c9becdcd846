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
import numpy.typing as npt

from layerscope.scores.probe_results import BY_SAMPLE, packed

Floats = npt.NDArray[np.float64]
CUT = 10
ROUNDED = 1e-5
"""How far mteb rounds its scores of retrieval."""


def sum_up_to(values: Floats, weights: Floats) -> Floats:
    """Return for each value the sum of the weights of all that are not above it, `[n]`."""
    order = np.argsort(values)
    sums = np.concatenate([[0.0], np.cumsum(weights[order])])
    return np.asarray(sums[np.searchsorted(values[order], values, side="right")])


def spearman_by_sample(one: Floats, two: Floats) -> Floats:
    """Return values `[n]` with Spearman's correlation of one and two as their mean; of ties all have the mean rank."""
    n = len(one)

    def sum_above(values: Floats, weights: Floats) -> Floats:
        not_above = sum_up_to(values, weights)
        not_below = sum_up_to(-values, weights)
        return np.asarray(weights.sum() - not_above + not_below) / (2 * n)

    # their mean is 0
    ranks = [0.5 - sum_above(values, np.ones(n)) for values in (one, two)]
    x, y = ranks
    spreads = [float(rank @ rank) / n for rank in ranks]
    covariance = float(x @ y) / n
    # a sample raises the ranks of all above it
    moved = x * y + sum_above(one, y) + sum_above(two, x) - 3 * covariance
    correlation = covariance / math.sqrt(spreads[0] * spreads[1])
    influence = moved / math.sqrt(spreads[0] * spreads[1])
    for values, rank, spread in zip((one, two), ranks, spreads, strict=True):
        moved = rank**2 + 2 * sum_above(values, rank) - 3 * spread
        influence -= correlation * moved / (2 * spread)
    return np.asarray(correlation + influence)


def _accuracy(task: Any, predictions: Any, rows: Any) -> Floats:
    """Return the share of a classification's draws in which each sample is right."""
    labels = np.asarray(rows[task.label_column_name][:])
    return np.asarray((np.asarray(predictions) == labels).mean(0))


def _spearman(_: Any, predictions: Any, rows: Any) -> Floats:
    labels = np.asarray(rows["score"][:], dtype=np.float64)
    return spearman_by_sample(
        labels, np.asarray(predictions["cosine_scores"], dtype=np.float64)
    )


def _ndcg(_: Any, predictions: Mapping[str, Mapping[str, float]], rows: Any) -> Floats:
    """Return nDCG@10 of each query, in the order of their names; of ties the last document leads, as in trec_eval."""
    discounts = 1 / np.log2(np.arange(2, CUT + 2))
    values = []
    for query in sorted(predictions):
        scores = predictions[query]
        relevant = rows["relevant_docs"][query]
        ranked = sorted(scores, key=lambda name: (scores[name], name), reverse=True)[
            :CUT
        ]
        gains = [relevant.get(name, 0) for name in ranked]
        ideal = sorted(relevant.values(), reverse=True)[:CUT]
        values.append(
            gains @ discounts[: len(gains)] / (ideal @ discounts[: len(ideal)])
        )
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

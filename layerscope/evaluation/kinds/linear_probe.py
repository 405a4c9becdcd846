"""Linear probes: a logistic regression on the vectors of a layer, or of labels that are numbers a ridge regression.

Their C is chosen inside each fold.
"""

from typing import Any

from layerscope.core.labels import is_target
from layerscope.evaluation.probe_states import Pooled
from layerscope.evaluation.probe_tasks import ProbeKind
from layerscope.probes import ProbeScore, linear_probe, ridge_probe


def linear(states: Any, labels: Any, seed: int) -> ProbeScore:
    """Return the score of the probe that the labels are for."""
    if is_target(labels):
        return ridge_probe(states, labels, seed=seed)
    return linear_probe(states, labels, seed=seed)


KIND = ProbeKind(
    "linear-probe",
    "linear probe",
    Pooled,
    linear,
    learns_mixes=True,
    takes_shift=True,
    takes_target=True,
    score="accuracy over 5 folds (C is chosen inside each), 95 % interval; R² of labels that are numbers",
)

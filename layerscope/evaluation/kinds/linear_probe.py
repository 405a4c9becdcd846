"""Linear probes: a logistic regression on the vectors of a layer, whose C is chosen inside each fold."""

from layerscope.evaluation.probe_states import Pooled
from layerscope.evaluation.probe_tasks import ProbeKind
from layerscope.probes import linear_probe

KIND = ProbeKind(
    "linear-probe",
    "linear probe",
    Pooled,
    linear_probe,
    learns_mixes=True,
    takes_shift=True,
    score="accuracy over 5 folds (C is chosen inside each), 95 % interval",
)

"""kNN probes: the labels of the nearest neighbours among the vectors of a layer."""

from layerscope.evaluation.probe_states import Pooled
from layerscope.evaluation.probe_tasks import ProbeKind
from layerscope.probes import knn_probe

KIND = ProbeKind(
    "knn-probe",
    "kNN probe",
    Pooled,
    knn_probe,
    score="accuracy over 5 folds, 95 % interval",
)

"""Labels of samples, voted by the nearest vectors."""

from layerscope.evaluation.kind import ProbeKind
from layerscope.evaluation.probing.states import Pooled
from layerscope.probes.knn import knn_probe

KIND = ProbeKind("knn-probe", "kNN probe", Pooled, knn_probe)

"""Labels of samples, read by a cross-validated linear classifier of their vectors."""

from layerscope.evaluation.kind import ProbeKind
from layerscope.evaluation.probing.states import Pooled
from layerscope.probes.linear import linear_probe

KIND = ProbeKind("linear-probe", "linear probe", Pooled, linear_probe)

"""Attention probes: a trained attention pooling over all tokens of a layer."""

from layerscope.evaluation.probe_states import Tokens
from layerscope.evaluation.probe_tasks import ProbeKind
from layerscope.probes import attention_probe

KIND = ProbeKind(
    "attention-probe",
    "attention probe",
    Tokens,
    attention_probe,
    score="accuracy over 3 folds",
)

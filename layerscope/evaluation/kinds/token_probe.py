"""Token probes: a linear probe on the first token of each word."""

from layerscope.evaluation.probe_states import Words
from layerscope.evaluation.probe_tasks import ProbeKind
from layerscope.probes import token_probe

KIND = ProbeKind(
    "token-probe",
    "token probe",
    Words,
    token_probe,
    reads="tokens and labels, two lists of equal length",
    score="accuracy over words, folds by sentence",
)

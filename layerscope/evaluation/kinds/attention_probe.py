"""Labels of samples, read from all their tokens by one trained query."""

from layerscope.evaluation.kind import ProbeKind
from layerscope.evaluation.probing.states import Tokens
from layerscope.probes.attention import attention_probe

KIND = ProbeKind("attention-probe", "attention probe", Tokens, attention_probe)

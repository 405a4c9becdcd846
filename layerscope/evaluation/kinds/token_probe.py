"""Labels of words, read from the state of each one's first token."""

from layerscope.evaluation.kind import ProbeKind
from layerscope.evaluation.probing.states import Words
from layerscope.probes.tokens import token_probe

KIND = ProbeKind("token-probe", "token probe", Words, token_probe)

from .attention import attention_probe as attention_probe
from .probes import (
    ProbeScore as ProbeScore,
    knn_probe as knn_probe,
    linear_probe as linear_probe,
    token_probe as token_probe,
)

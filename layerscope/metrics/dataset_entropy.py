from torch import Tensor

from layerscope.metrics.arrays import Array
from layerscope.metrics.matrix_entropy import matrix_entropy


def dataset_entropy(
    pooled: Array, alpha: float = 1.0, rows: str = "unit", normalization: str | None = None
) -> float | Tensor:
    """Return `matrix_entropy` over the pooled states of N samples: how many directions a data set uses.

    `pooled` is `[..., N, D]`, one vector a sample, pooled from tokens as the model made them: tokens
    centred in their own sentence before pooling would cancel in the mean. The value `[...]` is in nats, 0
    ... log min(N, D). Options and errors are those of `matrix_entropy`.

    Source: Skean et al. 2025, Layer by Layer, section 3.
    """
    return matrix_entropy(pooled, alpha=alpha, rows=rows, normalization=normalization)

from torch import Tensor

from layerscope.metrics.arrays import Array
from layerscope.metrics.factors import FromRows
from layerscope.metrics.matrix_entropy import entropy_of_rows, matrix_entropy
from layerscope.metrics.metric import Metric


def dataset_entropy(
    pooled: Array,
    alpha: float = 1.0,
    rows: str = "unit",
    normalization: str | None = None,
) -> float | Tensor:
    """Return `matrix_entropy` over the pooled states of N samples: how many directions a data set uses.

    `pooled` is `[..., N, D]`, one vector a sample, pooled from tokens as the model made them:
    tokens centred in their own sentence before pooling would cancel in the mean. The value `[...]`
    is in nats, 0 ... log min(N, D).

    Source: Skean et al. 2025, Layer by Layer, section 3 and equation 1, of raw rows.

    >>> round(dataset_entropy(np.eye(4)), 4)  # ln 4: four samples, four directions
    1.3863
    """
    return matrix_entropy(pooled, alpha=alpha, rows=rows, normalization=normalization)


DATASET_ENTROPY = Metric(
    dataset_entropy,
    FromRows(entropy_of_rows, orders=True),
    unit="nats",
    reading="nats; high: samples spread out",
    formula="S_α = log(Σ λᵢ^α) / (1 − α), S₁ = −Σ λᵢ log λᵢ, λ the eigenvalues of Z Zᵀ / tr(Z Zᵀ), Z the pooled states "
    "at unit length; raw: as they are; centred: minus their mean, then at unit length",
    meaning="The same entropy over the pooled states of all samples instead of the tokens of one; from 0 to log "
    "min(samples, width).",
    direction="High: samples spread over many directions. Whether high or low is better differs by model and data.",
)

from torch import Tensor

from layerscope.metrics.arrays import Array, as_finite64, as_result


def perplexity(nll: Array) -> float | Tensor:
    """Return exp of the mean negative log-likelihood per token.

    `nll` is `[..., T]` in nats, one value a predicted token, padding left out; the value `[...]` is at
    least 0, and at least 1 for probabilities of tokens. Float64. Raises `LayerscopeError` for empty or
    non-finite input.

    Source: Jelinek et al. 1977; Tracing Representation Progression, equations 20 to 22.
    """
    return as_result(as_finite64(nll, "nll", 1).mean(-1).exp())

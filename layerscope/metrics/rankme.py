import torch
from torch import Tensor

from layerscope.core.errors import LayerscopeError
from layerscope.metrics.arrays import Array, as_finite64, as_result
from layerscope.metrics.spectrum import singular_values


def rankme(Z: Array, eps: float = 1e-7) -> float | Tensor:
    """Return RankMe: exp(-sum p log p) with p the singular values of Z scaled to sum 1, plus `eps`.

    `Z` is `[..., N, D]`; the value `[...]` lies in 1 ... min(N, D) but for what `eps` adds, since p is not
    scaled again; with eps 0 it is `effective_rank`. Not centred. Float64. Raises `LayerscopeError` for
    non-finite input and eps < 0.

    Source: Garrido et al. 2023, RankMe, equation 2.
    """
    if not eps >= 0:
        raise LayerscopeError(f"eps={eps} is below 0: give 0 or more, such as 1e-7")
    values = singular_values(as_finite64(Z, "Z"))
    total = values.sum(-1, keepdim=True)
    p = values / total.masked_fill(total == 0, 1.0) + eps
    return as_result(torch.special.entr(p).sum(-1).exp())

from torch import Tensor

from layerscope.core import LayerscopeError
from layerscope.metrics.arrays import Array, as_result
from layerscope.metrics.factors import FromRows, Rows
from layerscope.metrics.metric import Metric
from layerscope.metrics.spectrum import entropy_of_spectrum

EPS = 1e-7
"""As published."""


def rankme(Z: Array | Rows, eps: float = EPS) -> float | Tensor:
    """Return RankMe: exp(-sum p log p) with p the singular values of Z scaled to sum 1, plus `eps`.

    `Z` is `[..., N, D]`; the value `[...]` lies in 1 ... min(N, D) but for what `eps` adds, since p
    is not scaled again; with eps 0 it is `effective_rank`. Not centred. Raises `LayerscopeError`
    for eps < 0.

    Source: Garrido et al. 2023, RankMe, equation 2.

    >>> round(rankme(np.diag([2.0, 1.0])), 2)
    1.89
    """
    if not eps >= 0:
        raise LayerscopeError(f"eps={eps} is below 0: give 0 or more, such as 1e-7")
    return as_result(entropy_of_spectrum(Rows.of(Z).spectrum, eps=eps).exp())


RANKME = Metric(
    rankme,
    FromRows(rankme, variant=lambda rows: f"eps={EPS:g}"),
    title="RankMe",
    unit="dimensions",
    reading="dimensions in use",
    formula="exp(−Σ pᵢ log pᵢ), pᵢ = σᵢ / Σ σⱼ + 10⁻⁷, σ the singular values of the pooled states, not centred",
    meaning="Effective rank with 1e-7 added to each share of the singular values, as it was published; from 1 to "
    "min(samples, width).",
    direction="High: more dimensions are in use. Proposed for choosing among self-supervised models of one kind; a "
    "hypothesis for layers.",
)

import torch
from torch import Tensor

from layerscope.core import LayerscopeError
from layerscope.metrics.arrays import Array, as_finite, as_result, centred, slices
from layerscope.metrics.factors import FromAllViews
from layerscope.metrics.metric import Metric
from layerscope.metrics.spectrum import (
    eigenvalues,
    entropy_of_spectrum,
    small_gram,
    symmetric_product,
)

_ROWS = 1024
"""Views taken at a time: their float64 copies stay in the cache, and memory in bounds."""


def lidar(views: Array, delta: float = 1e-4, eps: float = 0.0) -> float | Tensor:
    """Return the effective rank of linear discriminant analysis, every sample a class and its views the members.

    `views` is `[..., N, q, D]`: q views of N samples. With S_b the covariance of the N view means
    (over N - 1) and S_w that of views around their mean (over N (q - 1)) plus `delta` I, it is
    exp(-sum p log p), p the D eigenvalues of S_w^-1/2 S_b S_w^-1/2 scaled to sum 1, plus `eps`, as
    published. The value `[...]` lies in 1 ... min(D, N - 1) but for what `eps` adds, since p is not
    scaled again. Raises `LayerscopeError` for N < 2, q < 2, delta <= 0 or eps < 0.

    Source: Thilak et al. 2024, LiDAR: Sensing Linear Probing Performance.

    >>> samples = np.random.default_rng(0).normal(size=(20, 1, 3))
    >>> round(lidar(np.concatenate([samples, samples + 0.01], axis=1)), 2)
    2.68
    """
    states = as_finite(views, "views", 3)
    samples, n_views, width = states.shape[-3:]
    if samples < 2 or n_views < 2:
        raise LayerscopeError(
            f"views has {samples} samples of {n_views} views: LiDAR needs 2 samples of 2 views"
        )
    if not delta > 0 or eps < 0:
        raise LayerscopeError(
            f"delta={delta}, eps={eps}: give delta above 0 and eps of at least 0"
        )
    batch = states.reshape(-1, samples, n_views, width)
    by_item = [_discriminant_eigenvalues(item, delta) for item in batch]
    values = torch.stack(by_item).reshape(*states.shape[:-3], -1)
    # S_b has rank N - 1 at most: what is beyond is rounding and becomes 0, and counts among D as
    # `eps` is added to each
    rank = min(width, samples - 1)
    values = torch.nn.functional.pad(values[..., -rank:], (width - rank, 0))
    return as_result(entropy_of_spectrum(values, eps=eps).exp())


def _discriminant_eigenvalues(states: Tensor, delta: float) -> Tensor:
    """Return for `states` `[N, q, D]` the eigenvalues of L^-1 S_b L^-T, S_w = L L^T: those of S_w^-1/2 S_b S_w^-1/2."""
    samples, n_views, width = states.shape
    means = torch.empty(samples, width, dtype=torch.float64, device=states.device)
    within = means.new_zeros(width, width)
    step = max(1, _ROWS // n_views)
    for part in slices(samples, step):
        block = states[part].double()
        means[part] = block.mean(1)
        within += symmetric_product((block - means[part, None]).flatten(0, 1))
    within /= samples * (n_views - 1)
    within.diagonal().add_(delta)
    # S_b = F F^T
    between_factor = centred(means).mT / (samples - 1) ** 0.5
    within_factor = torch.linalg.cholesky(within)
    whitened = torch.linalg.solve_triangular(within_factor, between_factor, upper=False)
    return eigenvalues([small_gram(whitened)])[0]


LIDAR = Metric(
    lidar,
    FromAllViews(lidar),
    title="LiDAR",
    unit="directions",
    reading="directions that tell samples apart",
    formula="exp(−Σ pᵢ log pᵢ), p the eigenvalues of W^−½ S_b W^−½ scaled to sum 1, W = S_w + 10⁻⁴ I, S_b and S_w the "
    "covariances between and within samples",
    meaning="Effective rank of linear discriminant analysis with every sample as a class and its views as members: "
    "the scatter between samples, whitened by the scatter within; from 1 to min(width, samples − 1). The ε that the "
    "paper adds to each p after scaling is 0 here.",
    direction="High: more directions tell samples apart than augmentations disturb. A hypothesis for quality.",
)

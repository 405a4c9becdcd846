import torch
from torch import Tensor

from layerscope.errors import LayerscopeError
from layerscope.metrics.arrays import Array, as_finite64, as_result
from layerscope.metrics.spectrum import eigenvalues, entropy_of_spectrum, small_gram, symmetric_product


def lidar(views: Array, delta: float = 1e-4, eps: float = 0.0) -> float | Tensor:
    """Return the effective rank of what tells samples apart, measured against what tells views apart.

    `views` is `[..., N, q, D]`: q views of N samples. With S_b the covariance of the N view means (over
    N - 1) and S_w that of views around their mean (over N (q - 1)) plus `delta` I, it is exp of the entropy
    of the D eigenvalues of S_w^-1/2 S_b S_w^-1/2 plus `eps`, scaled to sum 1. The value `[...]` lies in
    1 ... min(D, N - 1), up to D for eps > 0. Float64. Raises `LayerscopeError` for non-finite input, N < 2,
    q < 2, delta <= 0 or eps < 0.

    Source: Thilak et al. 2024, LiDAR: sensing linear probing performance.
    """
    states = as_finite64(views, "views", 3)
    samples, copies, width = states.shape[-3:]
    if samples < 2 or copies < 2:
        raise LayerscopeError(
            f"views has {samples} samples of {copies} views: LiDAR needs at least 2 samples of 2 views"
        )
    if not delta > 0 or eps < 0:
        raise LayerscopeError(f"delta={delta}, eps={eps}: give delta above 0 and eps of at least 0")
    spread = _discriminant_eigenvalues(states, delta)
    rank = min(width, samples - 1)
    spread = torch.nn.functional.pad(spread[..., -rank:], (width - rank, 0)) + eps
    return as_result(entropy_of_spectrum(spread).exp())


def _discriminant_eigenvalues(states: Tensor, delta: float) -> Tensor:
    """Return the eigenvalues of L^-1 S_b L^-T, S_w = L L^T, which are those of S_w^-1/2 S_b S_w^-1/2."""
    samples, copies, width = states.shape[-3:]
    means = states.mean(-2)
    residuals = (states - means[..., None, :]).flatten(-3, -2)
    within = symmetric_product(residuals) / (samples * (copies - 1))
    within.diagonal(dim1=-2, dim2=-1).add_(delta)
    between = (means - means.mean(-2, keepdim=True)).mT / (samples - 1) ** 0.5
    factor = torch.linalg.cholesky(within)
    whitened = torch.linalg.solve_triangular(factor, between, upper=False)
    return eigenvalues([small_gram(whitened)])[0]

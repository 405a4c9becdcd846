"""How well one layer is a linear map of another, each sample judged by a regression without it.

No regression is run again for that. Of a ridge regression the error at a left-out sample is its error with
the sample over 1 − h, h being the sample's leverage: the weight that its own target has in its prediction
(Allen 1974). The penalty is that of the least generalised cross-validation error (Golub et al. 1979).
"""

import torch
from torch import Tensor

from layerscope.metrics.arrays import Array
from layerscope.metrics.cca import Principal, principal
from layerscope.metrics.metric import Metric
from layerscope.metrics.pairs import FromPairs, Measure, by_layer, of_pair

PENALTIES = torch.logspace(-6, 1, 8, dtype=torch.float64)
"""Of the regression, as shares of the largest squared singular value."""


def linear_map(X: Array, Y: Array) -> Tensor:
    """Return how well a linear map of `X` predicts each sample of `Y` when fitted to the others, `[..., N]`.

    `X` is `[..., N, D]`, `Y` `[..., N, D']`; the map is a ridge regression with an intercept, its
    penalty one of eight chosen by generalised cross-validation. A value is 1 minus the squared error
    of a sample over the mean squared error of guessing the mean of the others, so that the mean of
    the values is the held-out R²: 1 is perfect, 0 no better than the mean, and it may be lower. NaN
    where one side does not vary. X and Y may not be swapped. Raises `LayerscopeError` for N < 3.

    Source: Csordás et al. 2025, Do Language Models Use Their Depth Efficiently?, section 5.

    >>> states = np.random.default_rng(0).normal(size=(50, 3))
    >>> round(linear_map(states, states @ np.diag([1.0, 5.0, 0.1])).mean().item(), 3)
    1.0
    """
    return of_pair(measure(), X, Y)


def measure() -> Measure:
    """Return the linear map as a measure of two layers."""
    return Measure("a linear map", 3, principal, _explained, symmetric=False)


def _explained(first: Principal, second: Principal) -> Tensor:
    count = first.basis.shape[-2]
    # the rows around their mean, turned so that no column is without variance
    targets = second.basis * second.values[..., None, :]
    along = first.basis.mT @ targets
    shrinkage = _shrinkage(first, along, targets.square().sum((-2, -1)))
    errors = targets - first.basis @ (shrinkage[..., None] * along)
    leverage = (first.basis.square() * shrinkage[..., None, :]).sum(-1) + 1 / count
    held_out = errors.square().sum(-1) / (1 - leverage).square()
    guessed = targets.square().sum(-1) / (1 - 1 / count) ** 2
    return 1 - held_out / guessed.mean(-1, keepdim=True)


def _shrinkage(first: Principal, along: Tensor, total: Tensor) -> Tensor:
    """Return the factor `[..., r]` of each direction, by the penalty of the least generalised cross-validation error.

    `along` `[..., r, r']` is what the targets, with `total` as sum of squares, have in each
    direction.
    """
    count = first.basis.shape[-2]
    squares = first.values.square()[..., None, :]
    penalties = PENALTIES[:, None].to(squares) * squares[..., :1]
    shrinkage = squares / (squares + penalties)
    explained = along.square().sum(-1)
    # with N - 1 directions what is left is rounding, which small penalties would divide by nothing
    across = (total - explained.sum(-1)).masked_fill(first.rank >= count - 1, 0.0)
    missed = ((1 - shrinkage).square() * explained[..., None, :]).sum(-1)
    free = count - 1 - shrinkage.sum(-1)
    scores = (across[..., None] + missed) / free.square()
    best = scores.argmin(-1)[..., None, None].expand(squares.shape)
    chosen: Tensor = shrinkage.gather(-2, best).squeeze(-2)
    return chosen


LINEAR_MAP = Metric(
    linear_map,
    FromPairs(by_layer(measure), "ridge", least=3),
    reading="held-out R² of reading one layer from the other; 0: no better than the mean",
    formula="1 − Σ ‖yᵢ − ŷᵢ‖² / Σ ‖yᵢ − ȳᵢ‖², ŷᵢ by a ridge regression and ȳᵢ the mean, both without sample i",
    meaning="Share of a layer's variance that a linear map of another layer predicts, each sample by a map fitted to "
    "the others (R²): the layer across, or the last one, from the layer down. At most 1; 0 is no better than the mean.",
    direction="1: the layer that is read is a linear map of the one it is read from; the reverse need not hold.",
)

"""How states move from layer to layer: what only the theorems of Tracing Representation Progression need."""

import numpy as np
import numpy.typing as npt

from layerscope import metrics

Values = npt.NDArray[np.float64]


def norm_ratio(states: npt.ArrayLike) -> Values:
    """Return ‖h_ℓ‖ / ‖h_{ℓ+1} − h_ℓ‖ of states `[..., L+1, D]` by sample and layer, `[..., L]`.

    In a pre-norm block that is the skip connection over the long branch. Infinite where a block
    changes nothing.

    Source: Tracing Representation Progression, figure 11.

    >>> norm_ratio(np.array([[3.0, 0.0], [3.0, 1.0], [3.0, 3.0]])).round(4)
    array([3.    , 1.5811])
    """
    layers = np.asarray(states, dtype=np.float64)
    branches = np.linalg.norm(np.diff(layers, axis=-2), axis=-1)
    with np.errstate(divide="ignore"):
        ratio: Values = np.linalg.norm(layers[..., :-1, :], axis=-1) / branches
    return ratio


def line_distance(states: npt.ArrayLike) -> Values:
    """Return each inner layer's distance from the line through h_0 and h_L, over ‖h_L − h_0‖, `[..., L-1]`.

    Source: Tracing Representation Progression, assumption 1.

    >>> line_distance(np.array([[0.0, 0.0], [1.0, 1.0], [2.0, 0.0]]))
    array([0.5])
    """
    layers = np.asarray(states, dtype=np.float64)
    start = layers[..., :1, :]
    line = layers[..., -1:, :] - start
    length = np.linalg.norm(line, axis=-1, keepdims=True)
    away = layers[..., 1:-1, :] - start
    along = (away * line).sum(-1, keepdims=True) / length**2
    distance: Values = np.linalg.norm(away - along * line, axis=-1) / length[..., 0]
    return distance


def steady_norm(states: npt.ArrayLike, within: float = 0.1) -> Values:
    """Return 1 where a layer's norm differs from the layer before's by a share `within` at most, else 0, `[..., L]`.

    Source: Tracing Representation Progression, the proof of theorem 2.2, which assumes it.

    >>> steady_norm(np.array([[1.0, 0.0], [0.0, 1.05], [2.0, 0.0]]))
    array([1., 0.])
    """
    norms = np.linalg.norm(np.asarray(states, dtype=np.float64), axis=-1)
    steady: Values = (np.abs(np.diff(norms)) <= within * norms[..., :-1]).astype(
        np.float64
    )
    return steady


def monotone_share(states: npt.ArrayLike) -> Values:
    """Return the share of all triples ℓ₁ < ℓ₂ < ℓ₃ with cos(h_ℓ₁, h_ℓ₃) ≤ cos(h_ℓ₂, h_ℓ₃), `[...]`.

    Source: Tracing Representation Progression, theorem 2.1.

    >>> monotone_share(np.array([[0.0, 1.0], [1.0, 1.0], [1.0, 0.0], [1.0, 0.5]]))  # three of four
    array(0.75)
    """
    by_last_layer = metrics.monotone_triples(np.asarray(states)).numpy()
    last_layer = np.arange(2, 2 + by_last_layer.shape[-1])
    pairs_below = last_layer * (last_layer - 1) / 2
    share: Values = np.asarray(
        (by_last_layer * pairs_below).sum(-1) / pairs_below.sum()
    )
    return share

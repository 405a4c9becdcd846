"""How much each exit counts in a loss over many."""

from __future__ import annotations

import math
from collections.abc import Sequence

from layerscope.core.errors import LayerscopeError, choices

NAMED = ("linear", "uniform")


def exit_weights(
    layers: Sequence[int], depth: int | None = None, weights: str | Sequence[float] = "linear"
) -> tuple[float, ...]:
    """Return the weight of each exit; they sum to 1.

    `layers` are the depths of the exits, from 1 on, `depth` is L (None: the last of them). "linear" is
    2ℓ / (L(L+1)), "uniform" 1/L, both renormalised over the exits; a sequence of one number per exit is renormalised
    too. Raises `LayerscopeError` for layers that are not increasing or not within 1 … L, and for weights that are
    negative, not finite or all 0.

    Source: Tracing Representation Progression, section 3 and figure 15.

    >>> from layerscope.training import exit_weights
    >>> exit_weights([1, 3])
    (0.25, 0.75)
    >>> exit_weights([1, 2, 3, 4], weights="uniform")
    (0.25, 0.25, 0.25, 0.25)
    """
    found = [int(layer) for layer in layers]
    last = found[-1] if depth is None and found else depth
    if not found or found != sorted(set(found)) or found[0] < 1 or last is None or found[-1] > last:
        raise LayerscopeError(f"exits {list(layers)!r}: give increasing layers from 1 to {last or 'L'}, at least one")
    if isinstance(weights, str):
        if weights not in NAMED:
            raise LayerscopeError(f"weights {weights!r} do not exist{choices(weights, NAMED)}")
        plain = [float(layer) if weights == "linear" else 1.0 for layer in found]
    else:
        plain = [float(weight) for weight in weights]
    total = math.fsum(plain)
    wrong = len(plain) != len(found) or any(not math.isfinite(w) or w < 0 for w in plain) or total <= 0
    if wrong:
        raise LayerscopeError(f"weights {plain} for {len(found)} exits: give one number from 0 on for each, not all 0")
    return tuple(weight / total for weight in plain)

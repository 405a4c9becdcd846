"""Whether the deeper of two models takes the steps of the shallower one, spread over more blocks.

If so, layers at the same share of the depth hold the same, up to a linear map. So layers of the
second model are read from one layer each of the first, by the linear map of each sample that is
fitted to the others. Of models of 3 and 6 layers, where the second one is the deeper:

    read                            2  4  6
    from the same share             1  2  3
    from the same number, or the    2  3  3     it takes the same steps, then others
    last layer
    from layer 1 alone              1  1  1     it takes other steps: and so from 2, and 3

Its steps are the same where the first choice explains more than each of the others.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from layerscope.comparison.matching import Side
from layerscope.core.margin import error_of
from layerscope.metrics.linear_map import LINEAR_MAP, measure
from layerscope.metrics.pairs import each_two

NUMBER = "the same number"


def step_rows(a: Side, b: Side) -> Iterator[dict[str, Any]]:
    """Yield how much more is read of B's layers from those at the same share of A's depth than by other choices.

    The `variant` of a row names the other choice, `value_a` is its R² and `value_b` that of the
    same share. There are none for models of one depth, and for runs that lack layers.
    """
    few, many = sorted((a.depth, b.depth))
    lacks = any(len(side.run.layers) <= side.depth for side in (a, b))
    if few == many or lacks:
        return
    read_from = np.arange(1, few + 1)
    read = np.rint(read_from * many / few).astype(int)
    if a.depth > b.depth:
        read_from, read = read, read_from
    targets = replace(b, columns=tuple(b.columns[layer] for layer in read))
    by_sample = each_two(measure(), a.states, targets.states).numpy()

    def explained(layers: Any) -> Any:
        return by_sample[layers, np.arange(few)].mean(0)

    share = explained(read_from)
    choices = {NUMBER: np.minimum(read, a.depth)}
    for layer in range(1, a.depth + 1):
        choices[f"layer {layer} alone"] = np.full(few, layer)
    for name, layers in choices.items():
        other = explained(layers)
        gain = share - other
        yield {
            "kind": "steps",
            "run": a.name,
            "run_b": b.name,
            "metric": LINEAR_MAP.name,
            "variant": name,
            "pooling": a.pooling,
            "pooling_b": b.pooling,
            "value": gain.mean(),
            "stderr": error_of(gain),
            "n": len(gain),
            "n_skipped": a.total - len(gain),
            "value_a": other.mean(),
            "value_b": share.mean(),
            "paired": True,
        }

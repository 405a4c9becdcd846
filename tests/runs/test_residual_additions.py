"""The sentence on what each residual addition changes."""

import numpy as np
import pytest

from layerscope.runs.curves import Curve, steps_text
from layerscope.runs.registry import about


def panel(metric: str, residual: list[float], block: list[float]) -> list[Curve]:
    """Return curves of the addition of layers 1 and 2, and of the blocks' output from layer 0 on."""
    found = []
    for site, layers, values in (("attn_residual", (1, 2), residual), ("raw", (0, 1, 2), block)):
        errors = np.zeros(len(values))
        title, numbers = about(metric).title, np.array(values)
        curve = Curve(
            metric,
            title,
            None,
            "mean",
            site,
            "quality",
            layers,
            numbers,
            errors,
            None,
            None,
            9,
            9,
            0,
            None,
        )
        found.append(curve)
    return found


@pytest.mark.parametrize(
    ("metric", "told"),
    [
        (
            "anisotropy",
            "Change of anisotropy inside a block, on average: -3.00 points up to the attn residual, "
            "5.00 points up to the block output.",
        ),
        (
            "alpha_req",
            "Change of α-ReQ inside a block, on average: -0.0300 up to the attn residual, "
            "0.0500 up to the block output.",
        ),
        (
            "curvature",
            "Change of curvature inside a block, on average: -0.0300 radians up to the attn residual, "
            "0.0500 radians up to the block output.",
        ),
    ],
)
def test_a_change_is_told_in_the_metrics_unit(metric: str, told: str) -> None:
    assert steps_text(panel(metric, [0.48, 0.49], [0.5, 0.53, 0.54])) == told

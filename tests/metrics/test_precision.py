"""Half precision in, statistics in float32 or float64: what `layerscope.metrics` promises of every metric."""

import numpy as np
import pytest
import torch
from declared import METRICS, draw

PER_TOKEN = {name for name, metric in METRICS.items() if metric.inputs == "tokens"}
"""In float32 for inputs up to float32, as they run inside the pass; all others are float64."""
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-9}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("size", [1.0, 15_000.0])
@pytest.mark.parametrize("name", METRICS)
def test_half_precision_gives_what_float64_of_the_same_values_gives(
    name: str, size: float, dtype: torch.dtype, rng
):
    """At 15,000 every square and every sum of a row is beyond half precision."""
    metric = METRICS[name]
    drawn = draw(metric.inputs, rng)
    peak = max(np.abs(x).max() for x in drawn)
    half = [torch.from_numpy(np.stack([x, x[::-1].copy()]) * size / peak).to(dtype) for x in drawn]
    values, want = metric.call(*half), metric.call(*(x.double() for x in half))
    assert torch.isfinite(values).all() and want.dtype == torch.float64
    assert values.dtype == (torch.float32 if name in PER_TOKEN else torch.float64)
    tolerance = TOLERANCE[values.dtype]
    torch.testing.assert_close(values.double(), want, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", METRICS)
def test_types_follow_the_rule_for_float32_and_float64(name: str, rng):
    metric = METRICS[name]
    drawn = [np.stack([x, x]) for x in draw(metric.inputs, rng)]
    single = metric.call(*(torch.from_numpy(x).float() for x in drawn))
    assert single.dtype == (torch.float32 if name in PER_TOKEN else torch.float64)
    double = metric.call(*drawn)
    assert double.dtype == torch.float64
    torch.testing.assert_close(single.double(), double, rtol=1e-4, atol=1e-4)

"""What must not change a metric, what bounds it, and that it is the same for one layer and for many at once."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from declared import METRICS, Arrays, draw
from hypothesis import given, settings, strategies as st

from layerscope import metrics

EXAMPLES = settings(max_examples=8, deadline=None, derandomize=True)


def rotations(arrays: Arrays, rng: np.random.Generator, each: bool = False) -> Arrays:
    def turn() -> np.ndarray:
        return np.linalg.qr(rng.standard_normal((arrays[0].shape[-1],) * 2))[0]

    common = turn()
    return [x @ (turn() if each else common) for x in arrays]


def reordered(arrays: Arrays, rng: np.random.Generator, axis: int) -> Arrays:
    order = rng.permutation(arrays[0].shape[axis])
    return [np.take(x, order, axis) for x in arrays]


CHANGES: dict[str, Callable[[Arrays, np.random.Generator], Arrays]] = {
    "rotation": rotations,
    "rotation_each": lambda arrays, rng: rotations(arrays, rng, each=True),
    "scale": lambda arrays, rng: [
        x * factor for factor in [10 ** rng.uniform(-3, 3)] for x in arrays
    ],
    "scale_each": lambda arrays, rng: [x * 10 ** rng.uniform(-3, 3) for x in arrays],
    "row_scale": lambda arrays, rng: [
        x * 10 ** rng.uniform(-1, 1, (*x.shape[:-1], 1)) for x in arrays
    ],
    "shift": lambda arrays, rng: [
        x + step for step in [10 * rng.standard_normal(arrays[0].shape[-1])] for x in arrays
    ],
    "shift_each": lambda arrays, rng: [x + 10 * rng.standard_normal(x.shape[-1]) for x in arrays],
    "order": lambda arrays, rng: reordered(arrays, rng, -2),
    "sample_order": lambda arrays, rng: reordered(arrays, rng, -3),
    "reversal": lambda arrays, rng: [x[::-1].copy() for x in arrays],
    "transpose": lambda arrays, rng: [x.T.copy() for x in arrays],
    "swap": lambda arrays, rng: arrays[::-1],
}
TOGETHER = [name for name, metric in METRICS.items() if metric.inputs == "tokens"]


@pytest.mark.parametrize(
    ("name", "change"), [(n, c) for n, metric in METRICS.items() for c in metric.same.split()]
)
@EXAMPLES
@given(seed=st.integers(0, 2**32))
def test_does_not_see(name: str, change: str, seed: int) -> None:
    rng, metric = np.random.default_rng(seed), METRICS[name]
    arrays = draw(metric.inputs, rng)
    changed = CHANGES[change](arrays, rng)
    assert float(metric.call(*changed)) == pytest.approx(
        float(metric.call(*arrays)), rel=1e-6, abs=1e-7
    )


@pytest.mark.parametrize("name", METRICS)
@EXAMPLES
@given(seed=st.integers(0, 2**32))
def test_stays_in_its_range_for_one_layer_and_for_many_at_once(name: str, seed: int) -> None:
    metric = METRICS[name]
    # layers of one shape: the same draw, moved apart
    first = draw(metric.inputs, np.random.default_rng(seed))
    rng = np.random.default_rng(seed + 1)
    layers = [
        np.stack([x, x * rng.uniform(0.5, 2, x.shape), rng.standard_normal(x.shape)]) for x in first
    ]
    together = np.asarray(metric.call(*layers))
    alone = [float(metric.call(*(x[i] for x in layers))) for i in range(3)]
    np.testing.assert_allclose(together, alone, rtol=1e-9, atol=1e-9)
    n, d = (len(first[0]), first[0].shape[-1])
    assert (together >= metric.low(n, d) - 1e-9).all() and (
        together <= metric.high(n, d) + 1e-9
    ).all()


@EXAMPLES
@given(seed=st.integers(0, 2**32), rows=st.sampled_from(["unit", "raw", "centered"]))
def test_entropy_does_not_increase_with_its_order(seed: int, rows: str) -> None:
    z = draw("rows", np.random.default_rng(seed))[0]
    orders = (0.25, 0.5, 0.9, 1.0, 1.1, 1.5, 2.0, 4.0, np.inf)
    for metric in (metrics.matrix_entropy, metrics.dataset_entropy):
        values = [float(metric(z, alpha, rows)) for alpha in orders]
        assert np.diff(values).max() <= 1e-9
    values = [float(metrics.prompt_entropy(z, None, alpha, rows)) for alpha in orders]
    assert np.diff(values).max() <= 1e-9


@pytest.mark.parametrize("name", TOGETHER)
@EXAMPLES
@given(seed=st.integers(0, 2**32), side=st.sampled_from(["left", "right", "between"]))
def test_a_sample_does_not_see_padding_or_its_batch_mates(name: str, seed: int, side: str) -> None:
    rng, call = np.random.default_rng(seed), METRICS[name].call
    samples = [
        rng.standard_normal((int(length), 6)) + 0.5 for length in rng.integers(3, 12, size=5)
    ]
    batch, mask = np.full((5, 14, 6), np.nan), np.zeros((5, 14))
    for i, sample in enumerate(samples):
        free = 14 - len(sample)
        places = {"left": np.arange(free, 14), "right": np.arange(len(sample))}.get(side)
        places = np.sort(rng.choice(14, len(sample), replace=False)) if places is None else places
        batch[i, places], mask[i, places] = sample, 1
    alone = [float(call(sample)) for sample in samples]
    np.testing.assert_allclose(call(batch, mask), alone, rtol=1e-8, atol=1e-8)
    layers = call(torch.from_numpy(np.stack([batch, 2 * batch])), mask)
    np.testing.assert_allclose(layers[0], alone, rtol=1e-8, atol=1e-8)

"""Hartigan's dip against its definition, solved as a linear programme for every possible peak."""

from pathlib import Path

import numpy as np
import pytest
import tiny
from scipy.optimize import linprog

import layerscope
from layerscope.metrics import dip
from layerscope.show.plots import HeatMap


def nearest(values: np.ndarray) -> float:
    """Return the least max |F − G| over G convex up to a peak, with any step there, and concave after it."""
    x, sizes = np.unique(values, return_counts=True)
    above = sizes.cumsum() / len(values)
    return min(distance(x, above - sizes / len(values), above, peak) for peak in range(len(x)))


def distance(x: np.ndarray, below: np.ndarray, above: np.ndarray, peak: int) -> float:
    """Return it for one peak; G is known at 0 … peak from the left, and at peak … k − 1 from the right."""
    k = len(x)
    at = np.r_[: peak + 1, peak:k]
    G, near, far = np.eye(k + 2)[: k + 1], np.eye(k + 2)[-1], np.arange(k + 1) > peak
    lines = []  # weights of G and of the distance, and what they are at most
    for i, point in enumerate(at):
        shares = [below[point]] * int(not far[i] or point > peak) + [above[point]] * int(
            far[i] or point < peak
        )
        lines += [(sign * G[i] - near, sign * share) for share in shares for sign in (1, -1)]
    lines += [(G[i] - G[i + 1], 0) for i in range(k)]
    for side in (np.arange(peak + 1), np.arange(peak + 1, k + 1)):
        for a, b, c in zip(side, side[1:], side[2:], strict=False):
            bend = (G[b] - G[a]) / (x[at[b]] - x[at[a]]) - (G[c] - G[b]) / (x[at[c]] - x[at[b]])
            lines.append((bend * (-1 if far[b] else 1), 0))
    rows, limits = zip(*lines, strict=True)
    return float(linprog(near, A_ub=np.array(rows), b_ub=limits, bounds=[(0, 1)] * (k + 2)).fun)


@pytest.mark.parametrize("n", [4, 9, 16, 21])
@pytest.mark.parametrize("kind", ["one", "two", "skewed", "ties"])
def test_is_the_distance_to_the_nearest_distribution_of_one_peak(
    rng: np.random.Generator, n: int, kind: str
) -> None:
    values = {
        "one": lambda: rng.normal(size=n),
        "two": lambda: np.r_[rng.normal(size=n // 2), rng.normal(4, 1, n - n // 2)],
        "skewed": lambda: rng.exponential(size=n),
        "ties": lambda: rng.integers(0, 6, n).astype(float),
    }[kind]()
    assert dip(values) == pytest.approx(nearest(values), abs=1e-9)
    assert dip(3 - 7 * values) == pytest.approx(dip(values), abs=1e-12)


def test_two_heaps_exceed_one_and_skew_is_none(rng: np.random.Generator) -> None:
    n, limit = 1000, 0.53 / np.sqrt(1000)
    assert dip(np.r_[rng.normal(size=n // 2), rng.normal(5, 1, n // 2)]) > 4 * limit
    assert dip(rng.exponential(size=n)) < limit
    assert np.mean(
        [dip(rng.random(200)) > 0.53 / np.sqrt(200) for _ in range(200)]
    ) == pytest.approx(0.05, abs=0.04)


def test_a_run_has_it_where_asked_and_a_histogram_always(tmp_path: Path) -> None:
    texts = [*tiny.texts(20, longest=5), *(" ".join(tiny.texts(9, seed=i)) for i in range(20))]
    options = {"processor": tiny.tokenizer(special=True), "views": 0, "progress": False}
    run = layerscope.profile(
        tiny.bert(), texts, metrics="entropy_dip", out=tmp_path / "run", **options
    )
    samples = run.samples().query("metric == 'prompt_entropy'")
    table = run.table().query("metric == 'entropy_dip'")
    for layer, value in zip(table["layer"], table["value"], strict=True):
        own = samples.query(f"layer == {layer}")["value"].to_numpy()
        assert value == pytest.approx(nearest(own), abs=1e-6) and value > 0.1
    plots = [
        plot
        for section in run.document().sections
        for plot in section.parts
        if isinstance(plot, HeatMap)
    ]
    (histogram,) = [plot for plot in plots if plot.name == "histogram-prompt_entropy"]
    shown, middles = np.array(histogram.values), np.array(histogram.rows, dtype=float)
    assert shown.sum(0) == pytest.approx(np.full(len(table), 100.0))
    means = samples.groupby("layer")["value"].mean().to_numpy()
    assert middles @ shown / 100 == pytest.approx(means, abs=np.diff(middles).max())
    other = layerscope.profile(
        tiny.bert(), texts, metrics="seven", out=tmp_path / "other", **options
    )
    assert "entropy_dip" not in set(other.table()["metric"])

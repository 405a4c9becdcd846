"""Every coefficient against scipy, dcor or its definition, one pair of rows at a time."""

import math

import numpy as np
import pytest
import scipy.stats

from layerscope.scores.statistics import STATISTICS, kendall, pearson, spearman

SCIPY = {
    "pearson": scipy.stats.pearsonr,
    "spearman": scipy.stats.spearmanr,
    "kendall": scipy.stats.kendalltau,
}


def by_definition(x, y):
    """Distance correlation from doubly centred distances (Székely, Rizzo, Bakirov 2007, definition 2.8)."""

    def centred(v):
        d = np.abs(v[:, None] - v[None])
        return d - d.mean(0) - d.mean(1, keepdims=True) + d.mean()

    a, b = centred(x), centred(y)
    return math.sqrt((a * b).mean() / math.sqrt((a * a).mean() * (b * b).mean()))


@pytest.mark.parametrize("name", SCIPY)
@pytest.mark.parametrize("ties", [False, True])
def test_rows_agree_with_scipy(name, ties):
    rng = np.random.default_rng(3)
    x, y = rng.standard_normal((2, 50, 13))
    if ties:
        x, y = np.round(x), np.round(y)
    expected = [SCIPY[name](a, b).statistic for a, b in zip(x, y, strict=True)]
    assert STATISTICS[name](x, y) == pytest.approx(expected, abs=1e-12, nan_ok=True)
    assert STATISTICS[name](x[0], y[0]) == pytest.approx(expected[0], abs=1e-12)


def test_distance_correlation_agrees_with_its_definition():
    x, y = np.random.default_rng(4).standard_normal((2, 5, 4, 11))
    found = STATISTICS["dcor"](x, y)
    expected = [
        by_definition(a, b)
        for a, b in zip(x.reshape(-1, 11), y.reshape(-1, 11), strict=True)
    ]
    assert STATISTICS["dcor"](x[:0], y[:0]).shape == (0, 4)
    assert found.shape == (5, 4) and found.ravel() == pytest.approx(expected)


@pytest.mark.parametrize("statistic", [pearson, spearman, kendall])
@pytest.mark.parametrize("constant", [0.0, 0.1, 1e9 + 0.1])
def test_a_constant_row_has_no_correlation(statistic, constant):
    x = np.full((2, 7), constant)
    x[1] += np.arange(7)
    found = statistic(x, np.broadcast_to(np.arange(7.0), (2, 7)))
    assert math.isnan(found[0]) and found[1] == pytest.approx(1)

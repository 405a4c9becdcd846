"""Metrics from sums over chunks: those of the functions in `metrics/` on all states at once."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from layerscope import metrics
from layerscope.metrics.factors import FromRows, StoredRows
from layerscope.metrics.moments import RowSums, SummedRows, ValueSums
from layerscope.runs.registry import measured

OPTIONS = SimpleNamespace(rows=("unit", "raw"), alpha=(0.5, 1.0, 2.0))
OF_SUMS = [(metric.name, how) for metric, how in measured(FromRows) if how.of_sums]


def plain(n, width, seed=0):
    made = torch.Generator().manual_seed(seed)
    return torch.randn(n, width, generator=made) @ torch.randn(
        width, width, generator=made
    )


def offset():
    """A mean 3,000 times the spread, which drifts from chunk to chunk."""
    return plain(300, 24) + 3000 * torch.ones(24) + torch.linspace(0, 40, 300)[:, None]


def massive():
    """Two features of 10,000 times the others, in some samples."""
    states = plain(300, 24)
    states[::3, 5] *= 1e4
    states[1::7, 11] += 2e4
    return states


def flat():
    """A direction in which nothing varies, as after a layer norm without weights, and one feature that is dead."""
    states = plain(300, 24)
    states[:, 3] = 0
    return states - states.mean(1, keepdim=True)


STATES = {
    "plain": lambda: plain(300, 24),
    "offset": offset,
    "massive": massive,
    "flat": flat,
    "fewer samples than features": lambda: plain(20, 48),
}


def chunks(states, sizes=(7, 64, 1, 30)):
    start = turn = 0
    while start < len(states):
        yield states[start : start + sizes[turn % len(sizes)]]
        start, turn = start + sizes[turn % len(sizes)], turn + 1


def summed(states):
    parts = (RowSums.of(chunk[None]) for chunk in chunks(states))
    total = next(parts)
    for part in parts:
        total = total + part
    return total


@pytest.mark.parametrize("name", STATES)
@pytest.mark.parametrize("metric, how", OF_SUMS)
def test_metrics_of_rows_are_those_of_all_rows_at_once(name, metric, how):
    states = STATES[name]()
    exact = dict(how.measured(StoredRows(states[:, None]), OPTIONS))
    found = dict(how.measured(SummedRows(summed(states), 0), OPTIONS))
    assert found.keys() == exact.keys() and len(exact) == (6 if how.orders else 1)
    for variant, value in found.items():
        assert value == pytest.approx(exact[variant], rel=1e-9), variant


def test_equal_rows_have_no_spread():
    found = SummedRows(summed(torch.full((50, 8), 0.1)), 0)
    assert np.isnan(metrics.anisotropy(found)) and metrics.effective_rank(
        found
    ) == pytest.approx(1.0)


def test_values_have_mean_and_error_of_all_at_once():
    made = np.random.default_rng(0)
    values = made.normal(size=(3, 500)) + [[0.0], [1e6], [-3.0]]
    values[0, 17] = np.nan
    values[2, :40] = np.nan
    total = None
    for part in np.split(values, [1, 40, 41, 300], axis=1):
        own = ValueSums.of(torch.from_numpy(part))
        total = own if total is None else total + own
    for row, (mean, error, n) in zip(values, total.estimates(), strict=True):
        known = row[~np.isnan(row)]
        assert n == len(known)
        assert mean == pytest.approx(known.mean(), rel=1e-12, abs=1e-14)
        assert error == pytest.approx(known.std(ddof=1) / np.sqrt(n), rel=1e-9)


def test_one_value_has_no_error_and_none_no_mean():
    (one, none) = ValueSums.of(
        torch.tensor([[2.0, torch.nan], [torch.nan, torch.nan]])
    ).estimates()
    assert (one.value, one.n, none.n) == (2.0, 1, 0) and np.isnan(
        [one.stderr, none.value]
    ).all()

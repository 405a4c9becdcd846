import math
from types import SimpleNamespace

import numpy as np
import pytest

from layerscope.runs.curves import curves, panels
from layerscope.runs.findings import findings
from layerscope.runs.why import Fall, fall_of
from layerscope.show.numbers import error, number


@pytest.mark.parametrize(
    "value, text",
    [
        (2.0772, "2.08"),
        (0.07654, "0.0765"),
        (9.996, "10.0"),
        (6680.4, "6,680"),
        (99960.0, "1.00e5"),
        (-0.0123, "-0.0123"),
        (0.00012, "1.20e-4"),
        (0.0, "0"),
        (math.nan, "–"),
        (math.inf, "inf"),
    ],
)
def test_a_number_has_three_significant_digits(value, text):
    assert number(value) == text


@pytest.mark.parametrize(
    "stderr, text",
    [
        (0.0373, "±0.04"),
        (0.0116, "±0.012"),
        (0.0966, "±0.1"),
        (19.9, "±20"),
        (1023.0, "±1,000"),
        (1e-17, ""),
        (math.nan, ""),
    ],
)
def test_an_error_has_one_digit_or_two_after_a_one(stderr, text):
    assert error(stderr) == text


def test_panels_hold_the_poolings_of_one_metric_and_variant(written, by_layer):
    rows = [
        *by_layer("effective_rank", [1.0, 2.0], pooling="mean"),
        *by_layer("effective_rank", [3.0, 4.0], pooling="last"),
    ]
    entropies = [
        row
        for v in ("alpha=1", "alpha=2")
        for row in by_layer("prompt_entropy", [1.0, 2.0], variant=v)
    ]
    found = panels(curves(written(rows + entropies, depth=1, pooling=["mean", "last"])))
    assert list(found) == [
        ("prompt_entropy", "alpha=1"),
        ("prompt_entropy", "alpha=2"),
        ("effective_rank", None),
    ]
    assert {c.pooling for c in found["effective_rank", None]} == {"mean", "last"}
    assert panels([]) == {}


def test_curves_of_a_real_run_equal_its_table(labelled):
    found = {c.metric: c for c in curves(labelled)}
    rank, probe = found["effective_rank"], found["linear_probe"]
    assert rank.layers == (0, 1, 2, 3)
    np.testing.assert_array_equal(rank.values, labelled.metric("effective_rank"))
    assert rank.final == labelled.metric("effective_rank", site="normed")[3]
    assert rank.site == "raw" and rank.last()[0] == rank.final
    np.testing.assert_array_equal(probe.values, labelled.metric("linear_probe"))
    assert (
        probe.site == "normed" and probe.final is None and probe.last() == probe.at(3)
    )
    square = labelled.metric("cka")
    np.testing.assert_array_equal(found["cka"].values, square["final"].iloc[:4])
    assert found["cka"].final == pytest.approx(1.0)
    assert found["saturated"].layers == (1, 2, 3)
    assert "saturation_layer" not in found


def test_the_layer_that_stands_out_is_never_layer_0(written, by_layer):
    run = written(
        by_layer("prompt_entropy", [1.0, 3.0, 2.0, 4.0, 5.0])
        + by_layer("linear_probe", [0.9, 0.5, 0.6, 0.8, 0.7])
    )
    assert [c.stands_out for c in curves(run)] == [2, 3]


def test_without_a_finite_or_a_differing_value_no_layer_stands_out(written, by_layer):
    nan = [math.nan] * 5
    run = written(
        by_layer("prompt_entropy", nan)
        + by_layer("curvature", [2.0] * 5)
        + by_layer("lidar", [1, math.nan, 3, math.nan, 2])
    )
    assert {c.metric: c.stands_out for c in curves(run)} == {
        "prompt_entropy": None,
        "curvature": None,
        "lidar": 2,
    }
    assert findings(run, curves(run)) == []


@pytest.mark.parametrize(
    "final, fall",
    [(None, Fall(1, 1, 1, 1.0)), (4.0, Fall(3, 1, 3, 3.0)), (2.5, Fall(3, 3, 3, 1.5))],
)
def test_a_valley_lies_between_shoulders_of_which_the_final_norm_may_be_one(
    final, fall
):
    curve = SimpleNamespace(
        values=np.array([5.0, 1.5, 2.5, 1.0]), layers=(0, 1, 2, 3), final=final
    )
    assert fall_of(curve) == fall

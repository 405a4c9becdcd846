"""Calibrations that cannot be made, with the reason in a line."""

import numpy as np
import pytest
from populations import ONE_PERCENT, constant, population
from typed import refused

from layerscope.early_exit.calibration import NEVER, calibrate_recorded, check_exits

# what is too little


def test_298_samples_are_refused_and_299_are_enough():
    with refused(
        "max_disagreement 0.01 .* needs 299 samples at least, and there are 298"
    ):
        calibrate_recorded(constant(298, 0), [1], ONE_PERCENT)
    made = calibrate_recorded(constant(299, 0), [1], ONE_PERCENT)
    assert made.threshold == 0.5 and made.errors == 0 and made.mean_layer == 1
    differ = "at most 1 % of predictions on new samples like these differ from the full model's"
    assert str(made) == f"{differ}, with 95 % confidence (0 of 299 did)"
    with refused("needs 299 samples at least, and there are 0"):
        calibrate_recorded(constant(0, 0), [1], ONE_PERCENT)


def test_one_error_of_299_is_one_too_many():
    made = calibrate_recorded(constant(299, 1), [1], ONE_PERCENT)
    # thresholds above 0.9 pass, for nobody leaves at them
    assert 0.9 < made.threshold < 0.91 and made.mean_layer == 2 and made.errors == 0
    assert str(made).endswith(
        "with 95 % confidence (0 of 299 did; no sample left early)"
    )
    made = calibrate_recorded(constant(299, 1, score=1.0), [1], ONE_PERCENT)
    assert (made.threshold, made.tested) == (NEVER, 1)
    assert (made.mean_layer, made.disagreement) == (2, 0)
    assert str(made).startswith(
        "no sample leaves early: no threshold was certified for at most 1 % disagreement"
    )


def test_no_exits_never_leave():
    made = calibrate_recorded(constant(299, 0), [], ONE_PERCENT)
    assert (made.exits, made.threshold) == ((), NEVER)
    assert (made.tested, made.mean_layer) == (0, 2)
    assert str(made) == "no sample leaves early: no exit is checked"


@pytest.mark.parametrize("exits", [[0], [1, 5], [1.0], [True], ["1"]])
def test_exits_outside_the_layers_are_refused(exits):
    with refused(
        "^exit .* does not exist: give layers from 1 on, before the last of 5$"
    ):
        check_exits(exits, 5)


def test_exits_are_put_in_order_and_named_once():
    assert check_exits([np.int64(3), 1], 5) == (1, 3) and check_exits([], 1) == ()
    with refused(r"exits \[3, 1, 3\] name a layer twice"):
        calibrate_recorded(population(400, 0), [3, 1, 3], ONE_PERCENT)

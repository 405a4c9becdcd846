"""Blocks and checks are timed at every number of rows, and ways to run take turns."""

import itertools
import math

import numpy as np
import pytest
from classifiers import validation
from models import zoo
from tiny import texts, tokenizer
from unchanged import state_of

from layerscope.core.progress import Reporter
from layerscope.early_exit import timing
from layerscope.early_exit.exit_model import ExitModel
from layerscope.early_exit.timing import FEWEST_TURNS, measure_costs, race_exits


def model_of(layers):
    model = zoo.seeded("BertForSequenceClassification", layers, num_labels=3)
    return ExitModel(model, processor=tokenizer(special=True), device="cpu")


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    """Measure for a moment only."""
    monkeypatch.setattr(timing, "SECONDS", 0.2)
    monkeypatch.setattr(timing, "RACE", 0.0)


@pytest.mark.parametrize(
    "layers, size, rows",
    [
        (3, 12, (1, 2, 4, 8, 12)),
        (2, 1, (1,)),
        (1, 4, (1, 2, 4)),
        (3, 99, (1, 2, 4, 8, 16, 32, 49)),
    ],
)
def test_blocks_and_checks_are_measured_at_every_size(layers, size, rows):
    model = model_of(layers)
    if layers > 2:
        model.leave([2], 0.9)
    before = model.exits, model.threshold, state_of(model.model)
    costs = measure_costs(model, validation(model, texts(50)), size, Reporter())
    assert costs.rows == rows and min(costs.block) > 0 <= min(costs.check)
    assert (max(costs.check) == 0) == (layers == 1), "a model of one layer has no exits"
    after = model.exits, model.threshold, state_of(model.model)
    assert after == before, "measuring leaves the model as it was"


def test_a_check_takes_what_deciding_and_leaving_take(monkeypatch):
    model = model_of(3)
    samples = validation(model, texts(9))
    monkeypatch.setattr("time.perf_counter", itertools.count().__next__)
    costs = measure_costs(model, samples, 4, Reporter())
    assert {*costs.block} == {1.0}, "each mark is one tick after the one before"
    assert {*costs.check} == {2.0}


@pytest.mark.parametrize(
    "batches, turns", [(24, FEWEST_TURNS), (5, 2 * 5), (1, FEWEST_TURNS)]
)
def test_a_race_without_time_still_takes_several_batches_or_turns(
    batches, turns, monkeypatch
):
    model, samples = model_of(2), texts(2 * batches)
    seconds = []
    monkeypatch.setattr(
        timing, "speedup", lambda plain, other: seconds.append(other) or (1.0, 0.0)
    )
    plan = np.arange(2 * batches).reshape(-1, 2)
    raced = race_exits(
        model, validation(model, samples), [*plan], (1,), (math.inf, 0.5), Reporter()
    )
    names = {
        ("plain", 0.0),
        ("threshold", 0.5),
        ("threshold", math.inf),
        ("layer", 1),
        ("layer", 2),
    }
    assert raced.speedups.keys() == names
    assert {each.size for each in seconds} == {turns}
    plain = np.median(seconds[0], axis=0)
    assert raced.milliseconds == pytest.approx(1000 * plain.mean() / 2)
    spread = [f"times are of {FEWEST_TURNS} of 24 batches, spread over the data"]
    assert [*raced.notes] == (spread if batches == 24 else [])

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
import torch
import transformers as hf
from exit_times import predict, split
from tiny import seeded, texts, tokenizer
from torch import Tensor

from layerscope.core.progress import Reporter
from layerscope.core.stopwatch import Clock
from layerscope.early_exit import timing
from layerscope.early_exit.cost_model import STAGES
from layerscope.early_exit.exit_model import ExitModel
from layerscope.early_exit.predictions import Recorded
from layerscope.early_exit.timing import FEWEST_TURNS, measure_times, race_exits
from layerscope.early_exit.validation import Validation


def model_of(layers: int, width: int = 32, **options: int) -> ExitModel:
    config = hf.BertConfig(
        vocab_size=94,
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_labels=3,
        intermediate_size=4 * width,
        pad_token_id=0,
        max_position_embeddings=80,
        **options,
    )
    return ExitModel(
        seeded(hf.BertForSequenceClassification, config),
        processor=tokenizer(special=True),
        device="cpu",
    )


def lengths_of(model: ExitModel, samples: list[str]) -> np.ndarray:
    return np.asarray(model.layered.encoder.lengths(samples))


def test_a_clock_takes_what_lies_between_its_marks() -> None:
    clock = Clock(torch.device("cpu"))
    clock("start")
    time.sleep(0.02)
    clock("block", 3, 4)
    clock("check", 3, 4)
    (first, slept), (second, nothing) = clock.seconds()
    assert (first, second) == ("block", "check")
    assert 0.02 <= slept < 0.2
    assert 0 <= nothing < 0.01


def read(model: ExitModel, samples: list[str]) -> Validation:
    return Validation(
        "texts", model.layered.encoder, samples, lengths_of(model, samples).tolist(), None, ()
    )


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure for a moment only."""
    monkeypatch.setattr(timing, "SECONDS", 0.2)


class Bars:
    """Counts the steps of each bar."""

    def __init__(self) -> None:
        self.steps: dict[str, list[int]] = {}

    def say(self, line: str) -> None:
        raise AssertionError(line)

    @contextmanager
    def bar(self, title: str, total: int, unit: str = "") -> Iterator[object]:
        self.steps[title] = [0, total]

        def advance(steps: int, note: str = "") -> None:
            self.steps[title][0] += steps

        yield advance


def test_every_stage_is_measured_at_every_size() -> None:
    model = model_of(3).leave([2], 0.9)
    samples = texts(50)
    lengths, bars = lengths_of(model, samples), Bars()
    times = measure_times(model, read(model, samples), lengths, split(np.arange(50), 12), bars)
    assert times.rows == (1, 2, 4, 8, 12)
    assert times.tokens[0] == lengths.min()
    assert times.tokens[-1] == lengths.max()
    assert len(times.tokens) == 3
    for stage in STAGES:
        # what checks and leaving add to blocks as tiny as these is noise, and may be nothing
        assert (times.seconds[stage] >= 0).all() and (
            stage in ("check", "leave") or times.seconds[stage].all()
        ), stage
    assert times.seconds["block"][-1, -1] > times.seconds["block"][0, 0]
    assert {title: done == total for title, (done, total) in bars.steps.items()} == {
        "warming up": True,
        "measuring stages": True,
    }
    assert (model.exits, model.threshold) == ((2,), 0.9), "measuring leaves the model as it was"
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.model.modules())


@pytest.mark.parametrize(("batches", "turns"), [(24, FEWEST_TURNS), (5, 2 * 5), (1, FEWEST_TURNS)])
def test_a_race_without_time_still_takes_several_batches_or_turns(
    batches: int, turns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timing, "RACE", 0.0)
    model, samples, bars = model_of(2), texts(2 * batches), Bars()
    raced = race_exits(
        model, read(model, samples), split(np.arange(2 * batches), 2), (1,), (0.5,), bars
    )
    assert len(raced.plan) == min(batches, FEWEST_TURNS)
    assert bars.steps == {"exits and depths, interleaved": [turns, turns]}
    assert (
        raced.speedups.keys()
        == raced.errors.keys()
        >= {("threshold", 0.5), ("layer", 1), ("layer", 2)}
    )
    assert raced.errors["layer", 2] == 0 < raced.errors["threshold", 0.5]
    assert raced.never[0] == raced.speedups["threshold", math.inf]


def test_batches_of_one_length_or_of_one_row_have_one_size_of_it() -> None:
    model = model_of(2)
    samples = ["w1 w2 w3"] * 6
    lengths = lengths_of(model, samples)
    several = measure_times(
        model, read(model, samples), lengths, [np.arange(2), np.arange(2, 6)], Reporter()
    )
    assert (several.rows, several.tokens) == ((1, 2, 4), (5,))
    assert (several.seconds["leave"] > 0).any()
    single = measure_times(model, read(model, samples), lengths, split(np.arange(6), 1), Reporter())
    assert (single.rows, single.tokens) == ((1,), (5,))
    assert single.seconds["end"].min() > 0


def test_a_model_of_one_layer_has_no_exits_to_measure() -> None:
    model = model_of(1)
    samples = texts(4)
    times = measure_times(
        model, read(model, samples), lengths_of(model, samples), [np.arange(4)], Reporter()
    )
    assert times.seconds["block"].min() > 0
    assert times.seconds["check"].max() == 0


def test_what_is_predicted_is_what_runs() -> None:
    """Rows made to leave at layers drawn for them: as many leave where the prediction has them leave."""
    model, depth = model_of(6), 6
    samples = texts(48, longest=40)
    lengths = lengths_of(model, samples)
    plan = split(np.arange(48), 16)
    leaves = np.random.default_rng(0).choice([1, 2, 3, 4, 6], 48, p=[0.2, 0.3, 0.2, 0.1, 0.2])
    scores = (np.arange(1, depth + 1) >= leaves[:, None]).astype(float)
    recorded = Recorded("confidence", 3, scores, np.zeros(scores.shape, dtype=np.int64), lengths)
    times = measure_times(model, read(model, samples), lengths, plan, Reporter())
    exits = (1, 2, 3, 4, 5)
    found = predict(recorded, plan, exits, 0.5, times, trims=model.trims)
    seen: list[int] = []
    for batch in plan:
        wanted = torch.from_numpy(leaves[batch])
        inputs = model.layered.encoder.batch([samples[i] for i in batch])

        def decide(layer: int, logits: Tensor, rows: Tensor, wanted: Tensor = wanted) -> Tensor:
            return wanted[rows.cpu()] == layer

        seen += model.run(inputs, exits, decide).layers.tolist()
    assert found.leaving.tolist() == np.bincount(seen, minlength=depth + 1)[1:].tolist()
    assert found.seconds > 0 and found.plain_seconds > 0

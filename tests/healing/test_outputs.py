"""What is compared of two models, against formulas written out, and the schedule of a healing."""

from itertools import chain, count
from unittest.mock import patch

import numpy as np
import pytest
import tiny
import torch

from layerscope import LayerscopeError
from layerscope.healing import healing
from layerscope.healing.healing import Plan, Progress, _batches, _share, _steps
from layerscope.healing.lessons import FEWEST, learnable, lessons_of
from layerscope.healing.outputs import (
    Outputs,
    Pupil,
    distance_of,
    distances,
    outputs_by_layer,
    outputs_of,
    unexplained,
)
from layerscope.inputs import open_corpus
from layerscope.models import LoadOptions, Override
from layerscope.models.lens import skipping
from layerscope.truncation.source import open_source

one_thread = tiny.one_thread
TEXTS = ["w1 w2 w3", "w4", "w5 w6 w7 w8 w9"]


def encoder():
    return tiny.bert().base_model


def opened(make, folder, special=True):
    tiny.saved(make(), folder / "full", special=special)
    return open_source(folder / "full", None, Override(), LoadOptions())


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(
    ("make", "special"),
    [(encoder, True), (tiny.bert, True), (tiny.gpt2, False), (tiny.classifier, True)],
)
def test_one_pass_gives_what_models_without_the_later_blocks_give(
    make, special, tmp_path
):
    model = opened(make, tmp_path, special).model
    inputs = model.encoder.batch(TEXTS).to(model.device)
    with torch.no_grad():
        layers = outputs_by_layer(model, inputs, "mean", lambda out, _: out.given)
        assert len(layers) == model.stack.depth == 3
        for layer, values in enumerate(layers, 1):
            later = range(layer + 1, 4)
            with skipping(model.module, model.stack, later):
                cut = outputs_of(model, inputs, "mean")
            real = torch.ones(values.shape[:2], dtype=torch.bool)
            if values.ndim == 3:
                real = cut.mask.bool()
            torch.testing.assert_close(values[real], cut.given[real])
    assert cut.are_logits == (make is not encoder)
    assert ("divergence" in distance_of(model)) == cut.are_logits


def vectors(values):
    return Outputs(values[:, None], None, values, are_logits=False)


def logits(values, mask=None):
    return Outputs(values, mask, values, are_logits=True)


def test_the_distance_of_vectors_is_one_minus_their_cosine():
    ours = torch.tensor([[1.0, 0.0, 0.0], [1.0, 1.0, 0.0], [2.0, 0.0, 0.0]])
    theirs = torch.tensor([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [-3.0, 0.0, 0.0]])
    apart = distances(vectors(ours), vectors(theirs))
    torch.testing.assert_close(apart, torch.tensor([1.0, 1 - 0.5**0.5, 2.0]))


def test_the_distance_of_predictions_is_the_divergence_from_the_teacher():
    ours, theirs = normal(2, 3, 5), normal(2, 3, 5, seed=1)
    p, q = (tensor.double().softmax(-1) for tensor in (theirs, ours))
    wanted = (p * (p / q).log()).sum(-1)
    mask = torch.tensor([[1, 1, 1], [1, 0, 0]])
    masked = distances(logits(ours, mask), logits(theirs, mask)).double()
    torch.testing.assert_close(
        masked, torch.stack([wanted[0].mean(), wanted[1, 0]]), rtol=1e-5, atol=1e-6
    )
    whole = distances(logits(ours), logits(theirs)).double()
    torch.testing.assert_close(whole, wanted.mean(1), rtol=1e-5, atol=1e-6)
    pooled = distances(logits(ours[0]), logits(theirs[0])).double()
    torch.testing.assert_close(pooled, wanted[0], rtol=1e-5, atol=1e-6)


def test_states_are_compared_by_the_variance_that_is_not_explained():
    theirs = normal(2, 3, 4) + 10
    mask = torch.tensor([[1, 1, 1], [1, 0, 0]])
    real = mask.bool()
    means = theirs[real].mean(0).expand_as(theirs)
    ours = normal(2, 3, 4, seed=1)

    def measured(states, mask):
        pair = (Outputs(each, mask, each[:, 0], False) for each in (states, theirs))
        return float(unexplained(*pair))

    # the mean explains nothing, the states themselves everything; padding does not count
    assert measured(means, mask) == pytest.approx(1)
    assert measured(torch.where(real[..., None], theirs, ours), mask) == 0
    error = ((ours - theirs) ** 2).mean()
    spread = ((theirs - theirs.flatten(0, 1).mean(0)) ** 2).mean()
    assert measured(ours, None) == pytest.approx(float(error / spread), rel=1e-5)


def test_the_learning_rate_rises_and_falls_to_nothing():
    shares = [_share(Progress(100, step, [])) for step in range(101)]
    assert shares[:3] == pytest.approx([0.1, 0.2, 0.3])
    assert int(np.argmax(shares)) in (9, 10) and max(shares) == pytest.approx(1.0)
    assert shares[55] == pytest.approx(0.5) and shares[100] == 0
    assert _share(Progress(2, 0, [])) == 1.0


@pytest.mark.parametrize(
    ("progress", "finished"),
    [
        (Progress(10, 9, [0.5, 0.4]), False),
        (Progress(10, 10, [0.5, 0.4]), True),
        (Progress(10, 1, [0.5], "the loss is NaN"), True),
        (Progress(10, 5, [0.5, 0.3, 0.4, 0.4]), False),
        (Progress(10, 5, [0.5, 0.3, 0.4, 0.4, 0.4]), True),
    ],
)
def test_when_a_healing_ends(progress, finished):
    assert progress.finished is finished


def test_batches_hold_every_sample_once_a_pass_and_go_on_from_a_step(tmp_path):
    model = opened(tiny.bert, tmp_path).model
    samples = tiny.texts(45)
    plan = Plan(batch_size=4)
    batches = _batches(model, samples, plan, 0)
    first, second = [], []
    for a_pass in (first, second):
        while sum(map(len, a_pass)) < 45:
            a_pass.append(next(batches))
        assert sorted(text for batch in a_pass for text in batch) == sorted(samples)
        assert max(map(len, a_pass)) <= 4
    assert first != second and len(first) == 12
    later = _batches(model, samples, plan, 5)
    assert [next(later) for _ in range(7)] == first[5:]


def test_the_steps_fit_into_the_minutes_and_pass_ten_times_at_most(tmp_path):
    model = opened(encoder, tmp_path).model
    samples = [f"w{i} w{i + 1} w{i + 2}" for i in range(64)]
    weights = [*model.module.parameters()]
    pupil = Pupil(model, model, "mean")

    def steps(minutes):
        # each step takes a second by both clocks, the first one more
        clocks = [chain([-100], count()), chain([-90], count())]
        with (
            patch.object(healing.time, "perf_counter", clocks[0].__next__),
            patch.object(healing.time, "process_time", clocks[1].__next__),
        ):
            return _steps(pupil, samples, Plan(minutes, batch_size=8), weights)

    assert steps(1000) == 80  # ten passes of eight batches
    assert steps(0) == 1
    assert steps(0.5) in (29, 30)


def test_lessons_are_distinct_and_apart(tmp_path):
    model = opened(tiny.bert, tmp_path).model
    samples = [f"w{i} w{j}" for i in range(10) for j in range(10)]
    lessons = lessons_of(open_corpus([*samples, *samples]), model, seed=0)
    sizes = [len(part) for part in (lessons.learn, lessons.validation, lessons.held)]
    assert sizes == [60, 20, 20]
    assert len({*lessons.learn, *lessons.validation, *lessons.held}) == 100
    few = open_corpus(samples[: FEWEST - 1])
    with pytest.raises(LayerscopeError, match="49 distinct samples, and healing needs"):
        lessons_of(few, model, seed=0)
    assert lessons_of(open_corpus(samples[:FEWEST]), model, seed=0).held
    with pytest.raises(LayerscopeError, match="1 distinct sample,"):
        lessons_of(open_corpus(["w1", "w1"]), model, seed=0)


def test_a_language_model_reads_running_text_in_windows(tmp_path):
    model = opened(tiny.gpt2, tmp_path, special=False).model
    (tmp_path / "text.txt").write_text("\n".join(tiny.texts(60)))
    windows = learnable(tmp_path / "text.txt", model, 0)
    lengths = model.encoder.lengths(windows)
    assert len(windows) > 3 and min(lengths) >= 2 and max(lengths) == 64
    # one token has no next one, two have
    lines = learnable(["w1", "w1 w2", "w3 w4 w5"], model, 0)
    assert sorted(lines) == ["w1 w2", "w3 w4 w5"]

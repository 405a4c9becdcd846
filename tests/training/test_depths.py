"""What a training says it bought, and how often it is evaluated."""

from pathlib import Path

import pytest

from layerscope.training.depths import Line, Trained
from layerscope.training.fit import evaluations_of
from layerscope.training.options import Settings


def trained(
    values: list[float],
    *,
    n: int = 872,
    stderr: float = 0.009,
    classes: int | None = 2,
    separate: dict[int, float] | None = None,
) -> Trained:
    metric = "layer_accuracy" if classes else "perplexity"
    depths = [(len(values), k, value) for k, value in enumerate(values, start=1)]
    depths += [(k, k, value) for k, value in (separate or {}).items()]
    lines = [
        Line("m", "aligned", depth, k, metric, value, stderr, 2.0 * k, 9.0, n)
        for depth, k, value in depths
    ]
    return Trained(Path("out"), Path("out/history"), tuple(lines), "", classes)


def test_the_headline_is_the_shallowest_layer_within_a_point():
    found = trained([0.55, 0.69, 0.763, 0.922, 0.921, 0.923])
    assert found.chosen.layer == found.as_dict()["layer"] == 4
    assert found.headline == (
        "Layer 4 of 6: accuracy 92.2 ±0.9 %, 1.5 × faster, 0.1 points worse than all 6 "
        "(92.3 ±0.9 %; N = 872)"
    )
    even = trained([0.6, 0.7, 0.922, 0.922]).headline
    assert "1.3 × faster, as good as all 4 (92.2 ±0.9 %" in even
    assert trained([0.93, 0.94, 0.95]).chosen.layer == 2, "a point is more than 0.01 in floats"
    words = trained([40.0, 30.2, 30.0], stderr=0.5, classes=None, n=5000)
    assert words.headline.startswith(
        "Layer 2 of 3: perplexity 30.2 ±0.5, 1.5 × faster, 0.7 % worse than all 3 (30.0"
    )
    assert words.headline.endswith("N = 5,000 tokens)")


@pytest.mark.parametrize(
    ("correct", "n", "layer"),
    [
        ([93, 94, 95], 100, 2),
        ([94 * 8 - 1, 95 * 8 - 1, 95 * 8], 800, 2),
        ([0, 89 * 10**7 - 1, 90 * 10**7], 10**9, None),  # a point and a sample: 0.010000001
        ([0, 89 * 10**7, 90 * 10**7], 10**9, 2),
    ],
)
def test_a_point_of_accuracy_is_counted_in_samples(correct, n, layer):
    found = trained([right / n for right in correct], n=n, stderr=1e-5)
    assert (found.chosen and found.chosen.layer) == layer


def test_no_layer_is_advised_that_loses_more_and_a_better_separate_model_is_named():
    found = trained([0.55, 0.69, 0.763, 0.85, 0.90, 0.921], separate={3: 0.897, 5: 0.88})
    assert found.chosen is None
    assert found.headline.endswith("(N = 872); no shallower layer is within 1 point of it")
    (rival,) = found.rivals
    assert rival.startswith("A separate model of 3 layers is better than layer 3 of this one: ")
    assert rival.endswith(f"89.7 ±0.9 % against 76.3 ±0.9 %, in {Path('out/baselines/depth-3')}")


@pytest.mark.parametrize(
    ("values", "n", "stderr", "why"),
    [
        ([0.9, 0.9], 40, 0.04, "40 evaluation samples are too few, give at least 50"),
        (
            [0.5, 0.52],
            200,
            0.035,
            "the last layer (52.0 ±3.5 %, N = 200) is not above chance for 2",
        ),
    ],
)
def test_too_few_samples_and_a_model_at_chance_say_nothing_of_depth(values, n, stderr, why):
    found = trained(values, n=n, stderr=stderr)
    assert found.chosen is None and found.headline.startswith(f"No depth is chosen: {why}")


@pytest.mark.parametrize(
    ("settings", "steps", "wanted"),
    [
        (Settings(), 750, (75, True)),  # 24,000 sentences: ten times, and before the first step
        (Settings(), 188, (47, True)),
        (Settings(), 38, (38, False)),  # 1,200: at the end alone
        (Settings(eval_every=5), 38, (5, True)),
    ],
)
def test_evaluation_takes_a_bounded_share(settings, steps, wanted):
    every, first = evaluations_of(settings, steps, 872)
    assert (every, first) == wanted
    if settings.eval_every is None and first:
        assert (-(-steps // every) + first) * 872 <= 0.75 * steps * 32

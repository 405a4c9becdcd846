"""What a training says it bought, and how often it is evaluated."""

from pathlib import Path

import pytest

from layerscope.training.depths import Line, Trained
from layerscope.training.fit import evaluations_of
from layerscope.training.options import Settings


def trained(values, n=872, stderr=0.009, classes=2):
    metric = "layer_accuracy" if classes else "perplexity"
    lines = [
        Line(
            len(values),
            layer,
            metric,
            value,
            stderr,
            n,
            2.0 * layer,
            9.0,
        )
        for layer, value in enumerate(values, start=1)
    ]
    return Trained(Path("out"), Path("out/history"), tuple(lines), "", classes)


@pytest.mark.parametrize(
    "result, layer, headline",
    [
        (
            trained([0.55, 0.69, 0.763, 0.922, 0.921, 0.923]),
            4,
            "Layer 4 of 6: accuracy 92.2 ±0.9 %, 1.5 × faster; all 6: 92.3 ±0.9 % (N = 872)",
        ),
        (
            trained([0.93, 0.94, 0.95]),  # a point is more than 0.01 in floats
            2,
            "Layer 2 of 3: accuracy 94.0 ±0.9 %, 1.5 × faster; all 3: 95.0 ±0.9 % (N = 872)",
        ),
        (
            trained([40.0, 30.2, 30.0], stderr=0.5, classes=None, n=5000),
            2,
            "Layer 2 of 3: perplexity 30.2 ±0.5, 1.5 × faster; all 3: 30.0 ±0.5 (N = 5,000)",
        ),
        (
            trained([0.85, 0.90, 0.921]),
            None,
            "All 3 layers: accuracy 92.1 ±0.9 % (N = 872); every shallower layer loses more than 1%",
        ),
        (
            trained([0.9, 0.9], n=40),
            None,
            "No depth is chosen: 40 evaluation samples are too few, give at least 50",
        ),
        (
            trained([0.5, 0.52], n=200, stderr=0.035),
            None,
            "No depth is chosen: the last layer (52.0 ±3.5 %, N = 200) is not above chance for 2 classes, "
            "train longer",
        ),
    ],
)
def test_the_headline_is_the_shallowest_layer_within_a_point(result, layer, headline):
    assert result.as_dict()["layer"] == layer
    assert result.headline == headline


@pytest.mark.parametrize(
    "settings, steps, wanted",
    [
        (Settings(), 750, 75),  # 24,000 sentences: ten times
        (Settings(), 188, 47),
        (Settings(), 38, 38),  # 1,200: before the first step, and at the end
        (Settings(eval_every=5), 38, 5),
    ],
)
def test_evaluation_takes_a_bounded_share(settings, steps, wanted):
    assert evaluations_of(settings, steps, 872) == wanted

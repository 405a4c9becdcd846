"""T-alt: alternating keeps the last layer better than the aligned loss alone."""

from __future__ import annotations

from layerscope.papers import drawing
from layerscope.papers.assets import Assets
from layerscope.papers.recipe import TRACING, Claim, Evidence, Recipe
from layerscope.papers.vision import ALIGNED, ALWAYS, LACKS, SCALES, Bench, needs


def judge(assets: Assets) -> Evidence:
    """Compare the last layer's accuracy under both schedules."""
    bench = Bench(assets)
    kinds = {"alternating": ALIGNED, "aligned loss alone": ALWAYS}
    accuracies = {name: bench.average(kind, "layer_accuracy", 100) for name, kind in kinds.items()}
    return Evidence(
        {"last": bench.gain(ALIGNED, ALWAYS, "layer_accuracy", 100, bench.setup.depth)},
        plots=[drawing.chart("Accuracy by layer", "%", accuracies)],
    )


RECIPE = Recipe(
    "T-alt", TRACING, "Alternating keeps the last layer better than the aligned loss alone",
    (
        Claim(
            "last", "With steps that train the last layer alone between aligned ones, the last layer is more accurate.",
            "accuracy at the last layer, alternating less aligned alone, points", 0.0, "above", "seeds",
        ),
    ),
    judge, SCALES, needs(ALIGNED, ALWAYS), lacks=LACKS, minutes=8,
)  # fmt: skip

"""T-alt: alternating keeps the last layer better than the aligned loss alone."""

from __future__ import annotations

from layerscope.papers import drawing
from layerscope.papers.assets import Assets
from layerscope.papers.recipe import TRACING, Claim, Evidence, Recipe
from layerscope.papers.vision import ALIGNED, ALWAYS, LACKS, SCALES, Bench, needs


def judge(assets: Assets) -> Evidence:
    """Compare the last layer's accuracy under both schedules."""
    bench = Bench(assets)
    kinds = {"alternating": ALIGNED, "always aligned": ALWAYS}
    accuracies = {name: bench.average(kind, "layer_accuracy", 100) for name, kind in kinds.items()}
    return Evidence(
        {"last": bench.gain(ALIGNED, ALWAYS, "layer_accuracy", 100, bench.setup.depth)},
        plots=[drawing.chart("Accuracy by layer", "%", accuracies)],
    )


RECIPE = Recipe(
    "T-alt", TRACING, "Alternating keeps the last layer better than the aligned loss alone",
    (
        Claim(
            "last", "The last layer is more accurate when aligned steps alternate with steps on the last layer alone.",
            "accuracy at the last layer, alternating minus always aligned, percentage points", 0.0, "above", "seeds",
        ),
    ),
    judge, SCALES, needs(ALIGNED, ALWAYS), lacks=LACKS,
)  # fmt: skip

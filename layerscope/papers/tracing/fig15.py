"""T-fig15: linear weights keep the last layer better than uniform ones."""

from __future__ import annotations

from layerscope.papers import drawing
from layerscope.papers.assets import Assets
from layerscope.papers.recipe import TRACING, Claim, Evidence, Recipe
from layerscope.papers.vision import ALIGNED, LACKS, SCALES, UNIFORM, Bench, needs


def judge(assets: Assets) -> Evidence:
    """Compare the last layer's accuracy under both weights."""
    bench = Bench(assets)
    kinds = {"linear": ALIGNED, "uniform": UNIFORM}
    accuracies = {name: bench.average(kind, "layer_accuracy", 100) for name, kind in kinds.items()}
    return Evidence(
        {"last": bench.gain(ALIGNED, UNIFORM, "layer_accuracy", 100, bench.setup.depth)},
        plots=[drawing.chart("Accuracy by layer", "%", accuracies)],
    )


RECIPE = Recipe(
    "T-fig15", TRACING, "Linear weights keep the last layer better than uniform ones",
    (
        Claim(
            "last", "Weights that grow linearly with depth leave the last layer more accurate than equal ones.",
            "accuracy at the last layer, linear minus uniform, percentage points", 0.0, "above", "seeds",
        ),
    ),
    judge, SCALES, needs(ALIGNED, UNIFORM), lacks=LACKS,
)  # fmt: skip

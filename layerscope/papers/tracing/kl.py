"""T-kl: the aligned loss needs no distillation term."""

from __future__ import annotations

from layerscope.papers import drawing
from layerscope.papers.assets import Assets
from layerscope.papers.recipe import TRACING, Claim, Evidence, Recipe
from layerscope.papers.vision import ALIGNED, CLASSIFIERS, DISTILLED, LACKS, SCALES, Bench, needs


def judge(assets: Assets) -> Evidence:
    """Compare one shared classifier with a classifier per layer that learns from the last one's predictions."""
    bench = Bench(assets)
    kinds = {"aligned": ALIGNED, "classifiers": CLASSIFIERS, "classifiers, distilled": DISTILLED}
    accuracies = {name: bench.average(kind, "layer_accuracy", 100) for name, kind in kinds.items()}
    return Evidence(
        {"distilled": bench.gain(ALIGNED, DISTILLED, "layer_accuracy", 100)},
        plots=[drawing.chart("Accuracy by layer", "%", accuracies)],
    )


RECIPE = Recipe(
    "T-kl", TRACING, "The aligned loss needs no distillation term",
    (
        Claim(
            "distilled", "One shared classifier without distillation is within a point of separate ones with it.",
            "accuracy, aligned minus distilled classifiers, percentage points, mean over layers before the last",
            -1.0, "above", "seeds",
        ),
    ),
    judge, SCALES, needs(ALIGNED, CLASSIFIERS, DISTILLED), lacks=LACKS,
)  # fmt: skip

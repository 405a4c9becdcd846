"""T-fig4: one shared classifier is on par with a classifier per layer."""

from __future__ import annotations

from layerscope.papers import drawing
from layerscope.papers.assets import Assets
from layerscope.papers.recipe import TRACING, Claim, Evidence, Recipe
from layerscope.papers.vision import ALIGNED, CLASSIFIERS, LACKS, SCALES, STANDARD, Bench, needs


def judge(assets: Assets) -> Evidence:
    """Compare the shared classifier with one per layer, and both with standard training."""
    bench = Bench(assets)
    last = bench.setup.depth
    kinds = {"standard": STANDARD, "a classifier per layer": CLASSIFIERS, "aligned": ALIGNED}
    accuracies = {name: bench.average(kind, "layer_accuracy", 100) for name, kind in kinds.items()}
    cosines = {name: bench.average(kind, "cosine_similarity").iloc[:-1] for name, kind in kinds.items()}
    return Evidence(
        {
            "layers": bench.gain(ALIGNED, CLASSIFIERS, "layer_accuracy", 100),
            "last": bench.gain(ALIGNED, CLASSIFIERS, "layer_accuracy", 100, last),
            "cosine": bench.gain(ALIGNED, CLASSIFIERS, "cosine_similarity"),
        },
        plots=[
            drawing.chart("Accuracy by layer", "%", accuracies),
            drawing.chart("Cosine similarity to the last layer", "cosine, centred", cosines),
        ],
    )


RECIPE = Recipe(
    "T-fig4", TRACING, "One shared classifier is on par with a classifier per layer",
    (
        Claim(
            "layers",
            "With one shared classifier the earlier layers are within a point of those with classifiers of their own.",
            "accuracy, shared minus separate classifiers, percentage points, mean over layers before the last",
            -1.0, "above", "seeds",
        ),
        Claim(
            "last", "With one shared classifier the last layer is within a point of that with a classifier per layer.",
            "accuracy at the last layer, shared minus separate classifiers, percentage points",
            -1.0, "above", "seeds",
        ),
        Claim(
            "cosine",
            "One shared classifier makes the earlier layers more similar to the last than separate classifiers do.",
            "centred cosine to the last layer, shared minus separate classifiers, mean over layers before the last",
            0.0, "above", "seeds",
        ),
    ),
    judge, SCALES, needs(STANDARD, CLASSIFIERS, ALIGNED), lacks=LACKS,
)  # fmt: skip

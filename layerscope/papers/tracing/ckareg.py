"""T-ckareg: a CKA regulariser would not do better than the cosine one, which the paper infers."""

from __future__ import annotations

from layerscope.papers import drawing
from layerscope.papers.assets import Assets
from layerscope.papers.recipe import TRACING, Claim, Evidence, Recipe
from layerscope.papers.vision import ALIGNED, CKA, COSINE, LACKS, SCALES, Bench, needs


def judge(assets: Assets) -> Evidence:
    """Compare the regularisers with each other, and CKA's with the aligned loss."""
    bench = Bench(assets)
    kinds = {"CKA regulariser": CKA, "cosine regulariser": COSINE, "aligned": ALIGNED}
    accuracies = {name: bench.average(kind, "layer_accuracy", 100) for name, kind in kinds.items()}
    return Evidence(
        {
            "cosine": bench.gain(CKA, COSINE, "layer_accuracy", 100),
            "aligned": bench.gain(CKA, ALIGNED, "layer_accuracy", 100),
        },
        plots=[drawing.chart("Accuracy by layer", "%", accuracies)],
    )


RECIPE = Recipe(
    "T-ckareg", TRACING, "A CKA regulariser would do no better than the cosine one",
    (
        Claim(
            "cosine", "A CKA regulariser gains at most a point of accuracy over the cosine regulariser.",
            "accuracy, CKA minus cosine regulariser, percentage points, mean over layers before the last",
            1.0, "below", "seeds",
        ),
        Claim(
            "aligned", "A CKA regulariser gives less accurate layers than the aligned loss.",
            "accuracy, CKA regulariser minus aligned, percentage points, mean over layers before the last",
            0.0, "below", "seeds",
        ),
    ),
    judge, SCALES, needs(CKA, COSINE, ALIGNED), lacks=LACKS,
    note="The paper infers this without running it",
)  # fmt: skip

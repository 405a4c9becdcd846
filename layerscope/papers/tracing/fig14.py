"""T-fig14: a cosine regulariser helps little, the aligned loss a lot."""

from __future__ import annotations

from layerscope.papers import drawing
from layerscope.papers.assets import Assets
from layerscope.papers.intervals import mean
from layerscope.papers.recipe import TRACING, Claim, Evidence, Recipe
from layerscope.papers.vision import ALIGNED, COSINE, LACKS, SCALES, STANDARD, Bench, needs


def judge(assets: Assets) -> Evidence:
    """Compare what the regulariser and the aligned loss add to the accuracy of the layers before the last."""
    bench = Bench(assets)
    curves = {kind: bench.curves(kind, "layer_accuracy") for kind in (STANDARD, COSINE, ALIGNED)}
    means = {kind: [100 * float(curve.iloc[:-1].mean()) for curve in found] for kind, found in curves.items()}
    shares = [
        (cosine - standard) / (aligned - standard) for standard, cosine, aligned in zip(*means.values(), strict=True)
    ]
    kinds = {"standard": STANDARD, "cosine regulariser": COSINE, "aligned": ALIGNED}
    accuracies = {name: bench.average(kind, "layer_accuracy", 100) for name, kind in kinds.items()}
    return Evidence(
        {"aligned": bench.gain(ALIGNED, COSINE, "layer_accuracy", 100), "share": mean(shares)},
        plots=[drawing.chart("Accuracy by layer", "%", accuracies)],
    )


RECIPE = Recipe(
    "T-fig14", TRACING, "A cosine regulariser helps little, the aligned loss a lot",
    (
        Claim(
            "aligned", "The aligned loss makes the layers before the last more accurate than the cosine regulariser.",
            "accuracy, aligned minus cosine regulariser, percentage points, mean over layers before the last",
            0.0, "above", "seeds",
        ),
        Claim(
            "share", "The cosine regulariser gains less than half as much accuracy as the aligned loss.",
            "gain over standard training in mean accuracy before the last layer, regulariser's as a "
            "share of the aligned loss's", 0.5, "below", "seeds",
        ),
    ),
    judge, SCALES, needs(STANDARD, COSINE, ALIGNED), lacks=LACKS,
)  # fmt: skip

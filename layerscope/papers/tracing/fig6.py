"""T-fig6: aligned training moves saturation to earlier layers."""

from __future__ import annotations

from layerscope.papers import drawing
from layerscope.papers.assets import Assets
from layerscope.papers.intervals import mean
from layerscope.papers.recipe import TRACING, Claim, Evidence, Number, Recipe
from layerscope.papers.vision import ALIGNED, BOTH, LACKS, SCALES, STANDARD, Bench, needs


def judge(assets: Assets) -> Evidence:
    """Compare the mean layer from which a prediction no longer changes."""
    bench = Bench(assets)
    layers = {
        name: [float(run.metric("saturation_layer").iloc[-1]) for run in bench.histories(kind)]
        for name, kind in BOTH.items()
    }
    saturated = {name: bench.average(kind, "saturated", 100) for name, kind in BOTH.items()}
    return Evidence(
        {"vision": mean([a - b for a, b in zip(*layers.values(), strict=True)])},
        [Number(f"mean saturation layer, {name}", mean(found).value) for name, found in layers.items()],
        [drawing.chart("Saturated samples by layer", "%", saturated)],
    )


RECIPE = Recipe(
    "T-fig6", TRACING, "Aligned training moves saturation to earlier layers",
    (
        Claim(
            "vision", "In a vision transformer, predictions settle at shallower layers after aligned training.",
            "saturation layer, mean over samples, standard minus aligned, layers", 0.0, "above", "seeds",
        ),
    ),
    judge, SCALES, needs(STANDARD, ALIGNED), lacks=LACKS,
)  # fmt: skip

"""T-fig5: aligned training needs fewer layers, and each depth is as good as a model trained at that depth."""

from __future__ import annotations

from layerscope.core.errors import count
from layerscope.papers import drawing
from layerscope.papers.assets import Asset, Assets
from layerscope.papers.intervals import mean
from layerscope.papers.recipe import TRACING, Claim, Evidence, Number, Printed, Recipe
from layerscope.papers.vision import ALIGNED, BOTH, LACKS, SCALES, STANDARD, Bench, Kind, Vision, needs

SHARES = {"half": 2, "three quarters": 3}
"""Depths of the separate models, in quarters of the full one: 6 and 9 of 12 layers."""
DEFINED = "relative_to=all,epsilon=0.01,on=train"
"""Definition 3.1: the first layer that classifies all but 1 % of the training images."""


def judge(assets: Assets) -> Evidence:
    """Compare effective depths, look for drops of accuracy from layer to layer, and train models of other depths."""
    bench = Bench(assets)
    depths = {
        name: [float(run.metric("effective_depth", variant=DEFINED).iloc[-1]) for run in bench.histories(kind)]
        for name, kind in (("standard", STANDARD), ("aligned", ALIGNED))
    }
    aligned = bench.curves(ALIGNED, "layer_accuracy")
    found = {
        "depth": mean([a - b for a, b in zip(depths["standard"], depths["aligned"], strict=True)]),
        "monotone": mean([float(100 * curve.diff().min()) for curve in aligned]),
    }
    numbers = []
    for (name, quarters), kind in zip(SHARES.items(), _separate(bench.setup), strict=True):
        depth = bench.setup.depth * quarters // 4
        own = [float(curve.iloc[-1]) for curve in bench.curves(kind, "layer_accuracy")]
        cut = [float(curve.loc[depth]) for curve in aligned]
        found[name] = mean([100 * (a - b) for a, b in zip(cut, own, strict=True)])
        numbers.append(Number(f"accuracy of a separate model of {count(depth, 'layer')} [%]", 100 * mean(own).value))
    for name, values in depths.items():
        interval = mean(values)
        numbers.append(Number(f"effective depth, {name}", interval.value, interval.low, interval.high))
    accuracies = {name: bench.average(kind, "layer_accuracy", 100) for name, kind in BOTH.items()}
    return Evidence(found, numbers, [drawing.chart("Accuracy by layer", "%", accuracies)])


def _separate(setup: Vision) -> list[Kind]:
    return [Kind("standard", depth=setup.depth * quarters // 4) for quarters in SHARES.values()]


def _needs(setup: Vision) -> list[Asset]:
    return list(needs(STANDARD, ALIGNED, *_separate(setup))(setup))


RECIPE = Recipe(
    "T-fig5", TRACING, "Aligned training reduces the effective depth",
    (
        Claim(
            "depth", "After aligned training, a shallower layer suffices to classify the training images.",
            "effective depth, the first layer with at least 99 % of training images right; "
            "standard minus aligned, layers", 0.0, "above", "seeds",
        ),
        Claim(
            "monotone", "After aligned training, accuracy falls by less than a point from any layer to the next.",
            "lowest change of accuracy from one layer to the next, percentage points", -1.0, "above", "seeds",
        ),
        *(
            Claim(
                name,
                f"Cut to {name} of its layers, an aligned model is at most a point below one trained at that depth.",
                "accuracy, cut minus separately trained, percentage points", -1.0, "above", "seeds",
            )
            for name in SHARES
        ),
    ),
    judge, SCALES, _needs,
    printed=(
        Printed("effective depth, standard", 12, "section 3.1", "CIFAR-10"),
        Printed("effective depth, aligned", 7, "section 3.1", "CIFAR-10"),
    ),
    lacks=LACKS,
)  # fmt: skip

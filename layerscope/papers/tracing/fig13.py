"""T-fig13: train once, fit all devices: an aligned model cut at any depth is smaller, faster and as accurate."""

from __future__ import annotations

import pandas as pd

from layerscope.early_exit import ExitReport, open_exit_report
from layerscope.papers import drawing
from layerscope.papers.assets import Assets
from layerscope.papers.intervals import mean
from layerscope.papers.recipe import TRACING, Claim, Evidence, Number, Recipe
from layerscope.papers.vision import ALIGNED, LACKS, SCALES, STANDARD, Bench, Exiting, needs

BYTES = 4
"""Bytes of a float32 weight."""


def judge(assets: Assets) -> Evidence:
    """Read accuracy, measured speed and size of the model cut at each depth from the reports of exits."""
    bench = Bench(assets)
    half = bench.setup.depth // 2
    tables = [
        _by_depth(open_exit_report(bench.assets.get(Exiting(model)))) for model in ALIGNED.seeds(bench.setup)
    ]  # fmt: skip
    average = pd.concat(tables).groupby(level=0).mean()
    return Evidence(
        {
            "accuracy": mean([t.loc[half, "accuracy"] - t["accuracy"].iloc[-1] for t in tables]),
            "speed": mean([t.loc[half, "speed"] for t in tables]),
            "size": mean([t.loc[half, "MB"] / t["MB"].iloc[-1] for t in tables]),
        },
        [Number(f"{name}, {layer} layers", value) for name in average for layer, value in average[name].items()],
        [
            drawing.chart("Accuracy of the model cut at each layer", "%", {"aligned": average["accuracy"]}),
            drawing.chart(
                "Speed of the model cut at each layer", "times the full model's", {"aligned": average["speed"]}
            ),
        ],
    )


def _by_depth(report: ExitReport) -> pd.DataFrame:
    """Return accuracy in percent, measured speed-up and size by layer, the full model last."""
    found = report.depths.set_index("layer")
    table = pd.DataFrame(
        {"accuracy": 100 * found["accuracy"], "speed": found["measured"], "MB": found["parameters"] * BYTES / 1e6}
    )
    assert table.index[-1] == report.depth, "the last row is the full model"
    return table


RECIPE = Recipe(
    "T-fig13", TRACING, "Train once, fit all devices: one checkpoint, every depth",
    (
        Claim(
            "accuracy", "Cut to half its layers, an aligned model loses less than a point of accuracy.",
            "accuracy at half depth minus that of the full model, percentage points", -1.0, "above", "seeds",
        ),
        Claim(
            "speed", "Cut to half its layers, an aligned model is at least 1.5 times as fast.",
            "measured speed-up at half depth over the full model", 1.5, "above", "seeds",
        ),
        Claim(
            "size", "Cut to half its layers, an aligned model takes at most 0.6 of the memory.",
            "size of the weights at half depth, as a share of the full model's",
            0.6, "below", "seeds",
        ),
    ),
    judge, SCALES, needs(STANDARD, ALIGNED, exits=True), lacks=LACKS,
)  # fmt: skip

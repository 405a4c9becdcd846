"""What aligned training makes of early exits and of models cut at a depth, by reports of exits."""

import pandas as pd

from layerscope.early_exit import ExitReport
from layerscope_papers import drawing
from layerscope_papers.recipe import Evidence, Number, mean, paired
from layerscope_papers.vision import ALIGNED, BOTH, CLASSIFIERS, Bench, trained

LOSS = 0.03
"""Largest acceptable loss of accuracy to exits; the paper loses 2.3 points."""
BYTES = 4
"""Bytes of a float32 weight."""


@trained("T-fig7", kinds=BOTH | {"a classifier per layer": CLASSIFIERS}, exits=True)
def exits_by_confidence(bench: Bench) -> Evidence:
    """Take each report's fastest threshold within the loss, and compare speed-ups by depth."""
    reports = {name: bench.exits(kind) for name, kind in bench.kinds.items()}
    speeds = {
        name: [_speed(report) for report in found] for name, found in reports.items()
    }
    leaving = {
        name: pd.concat(
            [r.layers.set_index("layer")["share"] for r in found], axis=1
        ).mean(axis=1)
        * 100
        for name, found in reports.items()
    }
    rivals = zip(speeds["aligned"], speeds["a classifier per layer"], strict=True)
    return Evidence(
        {
            "speed": paired(speeds["aligned"], speeds["standard"]),
            "shared": mean([aligned / separate for aligned, separate in rivals]),
            "last": mean(
                [
                    float(report.layers["share"].iloc[-1])
                    for report in reports["standard"]
                ]
            ),
        },
        [
            Number(f"speed-up by depth, {name}", mean(found).value)
            for name, found in speeds.items()
        ],
        [drawing.chart("Samples that leave at each layer", "%", leaving)],
    )


def _speed(report: ExitReport) -> float:
    """Return the largest speed-up by depth, Σ L·mᵢ / Σ i·mᵢ, of a threshold that loses little accuracy."""
    plain = report.plain_accuracy or 0.0
    kept = report.curve[report.curve["accuracy"] >= plain - LOSS]
    return float(kept["exit_speedup"].max())


@trained("T-fig13", exits=True)
def every_depth(bench: Bench) -> Evidence:
    """Read accuracy, measured speed and size of the model cut at each depth from the reports of exits."""
    half = bench.setup.depth // 2
    tables = [_by_depth(report) for report in bench.exits(ALIGNED)]
    average = pd.concat(tables).groupby(level=0).mean()
    return Evidence(
        {
            "accuracy": mean(
                [t.loc[half, "accuracy"] - t["accuracy"].iloc[-1] for t in tables]
            ),
            "speed": mean([t.loc[half, "speed"] for t in tables]),
            "size": mean([t.loc[half, "MB"] / t["MB"].iloc[-1] for t in tables]),
        },
        [
            Number(f"{name}, {layer} layers", value)
            for name in average
            for layer, value in average[name].items()
        ],
        [
            drawing.chart(
                f"{title} of the model cut at each layer",
                unit,
                {"aligned": average[title.lower()]},
            )
            for title, unit in (("Accuracy", "%"), ("Speed", "times the full model's"))
        ],
    )


def _by_depth(report: ExitReport) -> pd.DataFrame:
    """Return accuracy in percent, measured speed-up and size by layer, the full model last."""
    found = report.depths.set_index("layer")
    table = pd.DataFrame(
        {
            "accuracy": 100 * found["accuracy"],
            "speed": found["measured"],
            "MB": found["parameters"] * BYTES / 1e6,
        }
    )
    assert table.index[-1] == report.depth, "the last row is the full model"
    return table

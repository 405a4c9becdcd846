"""What aligned training makes of early exits and of models cut at a depth, by reports of exits."""

from operator import truediv

import pandas as pd

from layerscope.early_exit import ExitReport
from layerscope_papers import drawing
from layerscope_papers.bench import Bench, trained
from layerscope_papers.intervals import at_last, mean, paired
from layerscope_papers.recipe import Evidence, Number
from layerscope_papers.vision import ALIGNED, BOTH, CLASSIFIERS, Confident, Exiting

LOSS = 0.03
"""Largest acceptable loss of accuracy to exits; the paper loses 2.3 points."""
BYTES = 4
"""Bytes of a float32 weight."""


@trained(
    "T-fig7", kinds=BOTH | {"a classifier per layer": CLASSIFIERS}, exits=Confident
)
def exits_by_confidence(bench: Bench) -> Evidence:
    """Compare where samples leave at the set threshold, and speed-ups at the fastest one within the loss.

    - speed, shared: each model at the threshold that makes it fastest without losing more than
      `LOSS`, as models whose losses differ cannot be compared by their speed;
    - last, early: at one threshold for all models, as the figure counts samples.
    """
    reports = {name: bench.exits(kind, Confident) for name, kind in bench.kinds.items()}
    speeds = {name: list(map(_speed, of_seeds)) for name, of_seeds in reports.items()}
    shares = {name: list(map(_leaving, of_seeds)) for name, of_seeds in reports.items()}
    half = bench.setup.depth // 2
    ratios = map(truediv, speeds["aligned"], speeds["a classifier per layer"])
    return Evidence(
        {
            "speed": paired(speeds["aligned"], speeds["standard"]),
            "shared": mean(list(ratios)),
            "last": at_last(shares["standard"]),
            "early": mean([of.loc[:half].sum() for of in shares["aligned"]]),
        },
        [
            Number(f"speed-up by depth, {name}", mean(of_seeds).value)
            for name, of_seeds in speeds.items()
        ],
        [drawing.mean_chart("Samples that leave at each layer", "share", shares)],
    )


def _leaving(report: ExitReport) -> pd.Series:
    """Return the share of samples that leave at each layer."""
    return report.layers.set_index("layer")["share"]


def _speed(report: ExitReport) -> float:
    """Return the largest speed-up by depth, Σ L·mᵢ / Σ i·mᵢ, of a threshold that loses little accuracy."""
    plain = report.plain_accuracy or 0.0
    kept = report.curve[report.curve["accuracy"] >= plain - LOSS]
    return float(kept["exit_speedup"].max())


@trained("T-fig13", exits=Exiting)
def every_depth(bench: Bench) -> Evidence:
    """Read accuracy, measured speed and size of the model cut at each depth from the reports of exits."""
    tables = list(map(_by_depth, bench.exits(ALIGNED, Exiting)))
    average = pd.concat(tables).groupby(level=0).mean()
    numbers = [
        Number(f"{name}, {layer} layers", value)
        for (layer, name), value in average.stack().items()
    ]
    plots = [
        drawing.chart(f"{title} of the model cut at each layer", unit, {"aligned": of})
        for title, unit, of in (
            ("Accuracy", "%", average["accuracy"]),
            ("Speed", "times the full model's", average["speed"]),
        )
    ]
    return Evidence({"deeper": mean(list(map(_rise, tables)))}, numbers, plots)


def _rise(table: pd.DataFrame) -> float:
    """Return how accuracy goes with the number of layers, as Spearman's correlation."""
    return float(table["accuracy"].corr(table.index.to_series(), "spearman"))


def _by_depth(report: ExitReport) -> pd.DataFrame:
    """Return accuracy in percent, measured speed-up and size by layer."""
    by_layer = report.depths.set_index("layer")
    return pd.DataFrame(
        {
            "accuracy": 100 * by_layer["accuracy"],
            "speed": by_layer["measured"],
            "MB": by_layer["parameters"] * BYTES / 1e6,
        }
    )

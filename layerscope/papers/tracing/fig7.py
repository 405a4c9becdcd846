"""T-fig7: with early exits by confidence, most samples leave an aligned model early, and few a standard one."""

from __future__ import annotations

import pandas as pd

from layerscope.early_exit import ExitReport, open_exit_report
from layerscope.papers import drawing
from layerscope.papers.assets import Assets
from layerscope.papers.intervals import mean
from layerscope.papers.recipe import TRACING, Claim, Evidence, Number, Printed, Recipe
from layerscope.papers.vision import ALIGNED, BOTH, LACKS, SCALES, STANDARD, Bench, Exiting, Kind, needs

LOSS = 0.03
"""Largest acceptable loss of accuracy to exits; the paper loses 2.3 points."""


def judge(assets: Assets) -> Evidence:
    """Take each report's fastest threshold within the loss, and compare speed-ups by depth."""
    bench = Bench(assets)
    reports = {name: _reports(bench, kind) for name, kind in BOTH.items()}
    speeds = {name: [_speed(report) for report in found] for name, found in reports.items()}
    last = [float(report.layers["share"].iloc[-1]) for report in reports["standard"]]
    leaving = {
        name: pd.concat([r.layers.set_index("layer")["share"] for r in found], axis=1).mean(axis=1) * 100
        for name, found in reports.items()
    }
    numbers = [Number(f"speed-up by depth, {name}", mean(found).value) for name, found in speeds.items()]
    return Evidence(
        {
            "speed": mean([a - b for b, a in zip(*speeds.values(), strict=True)]),
            "aligned": mean(speeds["aligned"]),
            "last": mean(last),
        },
        numbers,
        [drawing.chart("Samples that leave at each layer", "%", leaving)],
    )


def _reports(bench: Bench, kind: Kind) -> list[ExitReport]:
    return [open_exit_report(bench.assets.get(Exiting(model))) for model in kind.seeds(bench.setup)]


def _speed(report: ExitReport) -> float:
    """Return the largest speed-up by depth, Σ L·mᵢ / Σ i·mᵢ, of a threshold that loses little accuracy."""
    plain = report.plain_accuracy or 0.0
    kept = report.curve[report.curve["accuracy"] >= plain - LOSS]
    return float(kept["exit_speedup"].max())


RECIPE = Recipe(
    "T-fig7", TRACING, "With early exits by confidence, aligned models are faster",
    (
        Claim(
            "speed", "At the same loss of accuracy, early exits speed up an aligned model more than a standard one.",
            f"largest Σ L·mᵢ / Σ i·mᵢ that loses at most {100 * LOSS:.0f} points of accuracy, aligned minus standard",
            0.0, "above", "seeds",
        ),
        Claim(
            "aligned", "Early exits speed up an aligned model by a factor of more than 1.36.",
            f"largest Σ L·mᵢ / Σ i·mᵢ that loses at most {100 * LOSS:.0f} points of accuracy, mᵢ samples "
            "leaving at layer i",
            1.36, "above", "seeds",
        ),
        Claim(
            "last", "In a standard model, most samples leave only at the last layer.",
            "share of samples that leave at the last layer, at the calibrated threshold", 0.5, "above", "seeds",
        ),
    ),
    judge, SCALES, needs(STANDARD, ALIGNED, exits=True),
    printed=(
        Printed("speed-up by depth, aligned", 1.36, "section 4.1, figure 7", "ImageNet, another model and threshold"),
        Printed("accuracy, standard [%]", 80.28, "figure 7", "ImageNet"),
        Printed("accuracy, aligned [%]", 77.96, "figure 7", "ImageNet"),
        Printed("accuracy, a classifier per layer [%]", 78.32, "figure 7, at 1.42 times", "ImageNet"),
    ),
    lacks=LACKS,
)  # fmt: skip

"""L-fig4 and L-fig11: training changes the middle layers most, and early layers settle first."""

from __future__ import annotations

import numpy as np
import pandas as pd

from layerscope.papers import drawing, released
from layerscope.papers.assets import Assets
from layerscope.papers.intervals import mean
from layerscope.papers.recipe import LAYERS, Claim, Evidence, Number, Recipe

MODEL = "Pythia-410m"
METRICS = {"prompt_entropy": "maxEntropy", "lidar": "maxEntropy", "dime": "maxEntropy", "infonce": "raw"}
LATE = 16_000
"""After this step a change counts as late."""


def by_step(frame: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Return a metric as step × layer, layers 1 … L, in the order of training."""
    rows = frame[(frame["model"] == MODEL) & (frame["dataset"] == "wikitext")]
    found = released.curves(rows, metric, METRICS[metric]).reset_index(["model", "dataset"], drop=True)
    found = found[found.index.str.startswith("step")]
    found.index = found.index.str.removeprefix("step").astype(int)
    return found.sort_index().drop(columns=0, errors="ignore").dropna(axis=1)


def judge(assets: Assets) -> Evidence:
    """Compare how much each third of the layers changes between neighbouring checkpoints, by metric."""
    frame = released.metrics(assets)
    tables = {metric: by_step(frame, metric) for metric in METRICS}
    middle, early, numbers = [], [], []
    for metric, table in tables.items():
        moved = table.diff().abs().iloc[1:] / (table.to_numpy().max() - table.to_numpy().min())
        total = moved.sum()
        first, inner, last = released.thirds(total)
        middle.append(float(inner.mean() - np.mean([first.mean(), last.mean()])))
        late = moved[moved.index > LATE].sum() / total
        first_late, *rest = released.thirds(late)
        early.append(float(np.mean([part.mean() for part in rest]) - first_late.mean()))
        for name, part in zip(("first", "middle", "last"), (first, inner, last), strict=True):
            numbers.append(Number(f"{metric}, change over training, {name} third", float(part.mean())))
    entropy = tables["prompt_entropy"]
    return Evidence(
        {"middle": mean(middle), "early": mean(early)},
        numbers,
        [drawing.heat_map("Prompt entropy by step and layer, WikiText", entropy, down="step", across="layer")],
    )


RECIPE = Recipe(
    "L-fig4", LAYERS, "Training changes the middle layers most; early layers settle first",
    (
        Claim(
            "middle", "Over training, metrics change more in the middle third of the layers than in the others.",
            "sum of changes between checkpoints, share of the metric's range, middle third minus the other two",
            0.0, "above", "metrics",
        ),
        Claim(
            "early",
            f"Early layers settle first: less of their change comes after step {LATE:,} than of the other layers'.",
            f"share of a layer's change that comes after step {LATE:,}, last two thirds minus the first",
            0.0, "above", "metrics",
        ),
    ),
    judge, {"published": None},
    lacks={
        "small": "a language model with checkpoints of its training (layerscope profile and compare draw them)",
        "paper": "the checkpoints of Pythia-410M on WikiText-103, from the hub",
    },
    note=released.NOTE,
)  # fmt: skip

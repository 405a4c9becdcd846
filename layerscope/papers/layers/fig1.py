"""L-fig1: some middle layer beats the last on MTEB."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from layerscope.papers import drawing, released
from layerscope.papers.assets import Assets
from layerscope.papers.intervals import mean
from layerscope.papers.recipe import LAYERS, Claim, Evidence, Number, Printed, Recipe

MODELS = ("Pythia-14m", "Pythia-70m", "Pythia-160m", "Pythia-410m")


def gains(table: pd.DataFrame) -> list[float]:
    """Return for each task the gain over the last layer of the layer that the other tasks choose.

    In percentage points; `table` is layers × tasks. Layer 0 and the last layer are not candidates.
    """
    found = []
    for task in table:
        others = table.drop(columns=task).mean(axis=1).iloc[1:-1]
        found.append(100 * float(table.loc[others.idxmax(), task] - table[task].iloc[-1]))
    return found


def judge(assets: Assets) -> Evidence:
    """Choose each task's layer by the other tasks, and score it on that task against the last layer."""
    evaluation = released.scores(assets)
    tables = {model: evaluation.table(model, "main").dropna(axis=1) for model in MODELS}
    return Evidence(
        {model: mean(gains(table)) for model, table in tables.items()},
        [number for model, table in tables.items() for number in _summary(model, table)],
        [
            drawing.chart(
                "MTEB by layer", "mean score [%]", {model: 100 * table.mean(axis=1) for model, table in tables.items()}
            )
        ],
        [f"{model}: {table.shape[1]} tasks have a score at every layer." for model, table in tables.items()],
    )


def _summary(model: str, table: pd.DataFrame) -> Iterator[Number]:
    average = 100 * table.mean(axis=1)
    yield Number(f"{model}, layer 0", float(average.iloc[0]))
    yield Number(f"{model}, mean of layers", float(average.mean()))
    yield Number(f"{model}, best layer", float(average.max()))
    yield Number(f"{model}, last layer", float(average.iloc[-1]))
    yield Number(f"{model}, best layer of each task", 100 * float(table.max().mean()))
    yield Number(f"{model}, gain of the best layer [%]", 100 * float(average.max() / average.iloc[-1] - 1))


RECIPE = Recipe(
    "L-fig1", LAYERS, "Middle layers beat the last one on MTEB",
    tuple(
        Claim(
            model, f"In {model}, the middle layer that the other tasks choose beats the last on the one left out.",
            "gain in score over the last layer, percentage points, mean over tasks", 0.0, "above", "tasks",
        )
        for model in MODELS
    ),
    judge, {"published": None},
    printed=(
        Printed("Pythia-410m, gain of the best layer [%]", 2.0, "section 4.1: 2 to 16 %", "a range over models"),
    ),
    lacks={
        "small": "MTEB scores by layer of a model that needs no download (layerscope evaluate computes them)",
        "paper": "Mamba-370M, BERT and Llama-3 on 32 tasks of MTEB, from the hub",
    },
    note="Scores are the authors' own, by task and layer",
)  # fmt: skip

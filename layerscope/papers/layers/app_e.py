"""L-appE: a layer chosen without labels beats the last one."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from layerscope.papers import drawing, released
from layerscope.papers.assets import Assets
from layerscope.papers.intervals import mean
from layerscope.papers.recipe import LAYERS, Claim, Evidence, Number, Printed, Recipe
from layerscope.scores import corpus_averages, fit_rules, one_variant
from layerscope.scores.rules import Rule

MODEL = "Pythia-410m"
METRIC = "dime"


def judge(assets: Assets) -> Evidence:
    """Fit on the other models whether to minimise or maximise DiME, and score the layer it chooses on each task."""
    evaluation = released.scores(assets)
    frame = released.metrics(assets)
    frame = frame[frame["revision"].isin(("", "main")) & frame["dataset"].str.startswith(released.TASKS_OF)]
    rules = fit_rules(corpus_averages(one_variant(frame)), evaluation)
    table = 100 * evaluation.table(MODEL, "main").dropna(axis=1)
    gains = {rule.metric: _gains(rule, table) for rule in rules if rule.share is None and MODEL in rule.layers}
    numbers = list(_numbers(gains, table))
    return Evidence(
        {METRIC: mean(gains[METRIC].tolist())},
        numbers,
        [drawing.bars("Gain over the last layer", "points", numbers[::2])],
        released.flagged(frame),
    )


def _gains(rule: Rule, table: pd.DataFrame) -> pd.Series:
    return table.loc[rule.layers[MODEL]] - table.iloc[-1]


def _numbers(gains: dict[str, pd.Series], table: pd.DataFrame) -> Iterator[Number]:
    for name, found in gains.items():
        interval = mean(found.tolist())
        yield Number(f"gain by {name} [points]", interval.value, interval.low, interval.high)
        yield Number(f"gain by {name} [%]", 100 * interval.value / float(table.iloc[-1].mean()))


RECIPE = Recipe(
    "L-appE", LAYERS, "A layer chosen without labels beats the last one",
    (
        Claim(
            METRIC, "On Pythia-410M, the layer that DiME chooses without labels beats the last layer.",
            "gain in score over the last layer, percentage points, mean over tasks; whether to minimise or maximise "
            "DiME is fitted on other models",
            0.0, "above", "tasks",
        ),
    ),
    judge, {"published": None},
    printed=(Printed(f"gain by {METRIC} [%]", 3.0, "appendix E", "the direction was not fitted on other models"),),
    lacks={
        "small": "scores on 32 tasks by layer (layerscope select chooses a layer of your own model without labels)",
        "paper": "Pythia-410M on 32 tasks of MTEB, from the hub",
    },
    note=released.NOTE,
)  # fmt: skip

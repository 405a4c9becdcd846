"""A mix of layers instead of one layer, where an evaluation shows that it pays."""

import math
from dataclasses import replace

import numpy as np

from layerscope.core.options import Asked
from layerscope.scores.grids import Grid
from layerscope.selection.choice import Case
from layerscope.selection.selection import Selection

CHANCE = 0.05
"""Chance, over all mixes together, to choose one that gains nothing."""


def with_mix(found: Selection, grid: Grid, case: Case, asked: Asked) -> Selection:
    """Return the choice of the mix that is clearly better than the best single layer, else the choice as it is.

    Clear is a gain beyond its paired standard error at 95 %, over all mixes together (Bonferroni),
    both mix and layer chosen in the folds. The mix is one that `truncate` writes, within the
    bounds, and of the same weights on all tasks. A rule or loss that is asked for, and tasks of
    unlike weight, choose among layers alone.
    """
    from scipy.stats import norm

    weighed = len(set((asked.tasks or {}).values())) > 1
    gains = grid.gains_of_mixes
    if (
        found.lacking
        or gains.empty
        or weighed
        or asked.rule is not None
        or case.budget.max_loss is not None
    ):
        return found
    clear = gains[gains["gain"] > norm.ppf(1 - CHANCE / len(gains)) * gains["error"]].sort_values(
        "gain", ascending=False
    )
    for name, row in clear.iterrows():
        weights = set(grid.mixes.loc[grid.mixes["mix"] == name, "weights"])
        text = str(next(iter(weights))) if len(weights) == 1 else ""
        deepest = next((c for c in found.layers if text and c.layer == max(_layers(text))), None)
        costs = {} if case.costs is None else case.costs.layers
        if deepest is None or not case.budget.allows(costs.get(deepest.layer)):
            continue
        tasks = [str(task) for task in grid.complete]
        error = math.hypot(*(grid.at(str(name), task).error for task in tasks)) / len(tasks)
        score, base = grid.mean(str(name)), found.baseline
        mixed = replace(
            deepest,
            score=score,
            stderr=error,
            difference=score - (base.score or 0),
            difference_error=float(
                np.hypot(error, math.nan if base.stderr is None else base.stderr)
            ),
        )
        gain = f"{grid.unit.difference(row['gain'])} ±{grid.unit.number(row['error'])}"
        return replace(
            found,
            layer=deepest.layer,
            as_shipped=False,
            rule="mix",
            apart=None,
            by_task=(),
            mix=str(name),
            weights=text,
            mixed=mixed,
            gain=mixed.difference,
            gain_error=mixed.difference_error,
            why=f"{gain} over the best single layer, mix and layer both chosen in folds that do not judge them",
        )
    return replace(
        found, why=f"{found.why}; no mix of layers that can be written is clearly better"
    )


def _layers(weights: str) -> list[int]:
    return [int(part.partition("=")[0]) for part in weights.split(",")]

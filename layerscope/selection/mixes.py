"""A mix of layers instead of one layer, where an evaluation shows that it pays."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd

from layerscope.scores.grids import Grid
from layerscope.selection.choice import Case
from layerscope.selection.selection import Candidate, Selection

CHANCE = 0.05
"""Chance, over all mixes together, to choose one that gains nothing."""


def with_mix(selection: Selection, grid: Grid, case: Case) -> Selection:
    """Return the choice of the mix that is clearly better than the best single layer, else the choice as it is.

    Clear is a gain beyond its paired standard error at 95 %, over all mixes together (Bonferroni),
    both mix and layer chosen in the folds. The mix is one that `truncate` writes, within the
    bounds, and of the same weights on all tasks.
    """
    columns = case.columns()
    allowed = {
        candidate.layer: candidate
        for column, candidate in enumerate(selection.layers)
        if column in columns
    }
    for name, gain in _clear(grid.gains_of_mixes).iterrows():
        mix = str(name)
        of_tasks = grid.mixes.loc[grid.mixes["mix"] == mix, "weights"].unique()
        if len(of_tasks) > 1:
            continue
        weights = str(of_tasks[0])
        parts = filter(None, weights.split(","))
        layers = [int(part.partition("=")[0]) for part in parts]
        deepest = allowed.get(max(layers, default=-1))
        if deepest is None:
            continue
        mixed = _mixed(deepest, grid, mix, selection.baseline)
        by = f"{grid.unit.difference(gain['gain'])} ±{grid.unit.number(gain['error'])}"
        return replace(
            selection,
            layer=deepest.layer,
            as_shipped=False,
            rule="mix",
            apart=None,
            mix=mix,
            weights=weights,
            mixed=mixed,
            gain=mixed.difference,
            gain_error=mixed.difference_error,
            why=f"{by} over the best single layer, mix and layer both chosen in folds that do not judge them",
        )
    why = f"{selection.why}; no mix of layers that can be written is clearly better"
    return replace(selection, why=why)


def _clear(gains: pd.DataFrame) -> pd.DataFrame:
    """Return the gains that chance does not explain, the largest first."""
    from scipy.stats import norm

    errors = norm.ppf(1 - CHANCE / len(gains))
    clear = gains["gain"] > errors * gains["error"]
    return gains[clear].sort_values("gain", ascending=False)


def _mixed(deepest: Candidate, grid: Grid, mix: str, baseline: Candidate) -> Candidate:
    """Return the scores of a mix, which costs what its deepest layer does."""
    score = grid.mean(mix)
    error = grid.error(mix)
    baseline_error = math.nan if baseline.stderr is None else baseline.stderr
    return replace(
        deepest,
        score=score,
        stderr=error,
        difference=score - (baseline.score or 0),
        difference_error=float(np.hypot(error, baseline_error)),
    )

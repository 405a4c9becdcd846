"""The tables of an exit report: a row a threshold, a layer, and a depth."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from torch import nn

from layerscope.early_exit.calibration import along, path
from layerscope.early_exit.cost_model import Simulation
from layerscope.early_exit.exit_model import ExitModel
from layerscope.early_exit.racing import Raced
from layerscope.early_exit.recorded import Layers, Recorded
from layerscope.metrics import exit_speedup
from layerscope.truncation.speed import parameters

SHOWN = 9
"""Thresholds of the curve beside the one that was chosen."""


def thresholds_shown(recorded: Recorded, exits: Sequence[int], chosen: float) -> tuple[float, ...]:
    """Return some thresholds, descending: evenly spaced in the depth that samples reach, with the chosen one."""
    every = path(recorded.criterion, recorded.classes, exits)
    if not every:
        return (chosen,)
    layers = np.broadcast_to([*exits, recorded.depth], (len(recorded), len(exits) + 1))
    reached = along(recorded, exits, every, layers)
    wanted = np.linspace(reached[0], reached[-1], SHOWN)
    places = {int(np.abs(reached - depth).argmin()) for depth in wanted}
    return tuple(sorted({*(every[place] for place in places), chosen}, reverse=True))


def curve_table(
    recorded: Recorded, exits: Sequence[int], thresholds: Sequence[float], chosen: float, simulation: Simulation,
    raced: Raced,
) -> pd.DataFrame:  # fmt: skip
    """Return a row for each threshold: how deep samples come, what it wins by depth, expected and measured."""
    rows = []
    for threshold in thresholds:
        leaving = recorded.leaves(exits, threshold)
        counts = np.bincount(leaving, minlength=recorded.depth + 1)[1:]
        rows.append(
            {
                "threshold": threshold,
                "chosen": threshold == chosen,
                "mean_layer": leaving.mean(),
                "exit_speedup": exit_speedup(counts.astype(float)),
                "predicted": simulation.run(exits, threshold).speedup,
                "measured": raced.speedup(threshold),
                "accuracy": recorded.accuracy(leaving),
                "disagreement": recorded.disagrees(leaving).mean(),
            }
        )
    return pd.DataFrame(rows)


def layers_table(recorded: Recorded, exits: Sequence[int], leaving: Layers) -> pd.DataFrame:
    """Return a row for each layer: how many leave there, and what all would score if they did."""
    counts = np.bincount(leaving, minlength=recorded.depth + 1)[1:]
    return pd.DataFrame(
        {
            "layer": range(1, recorded.depth + 1),
            "checked": [layer in exits for layer in range(1, recorded.depth + 1)],
            "leaving": counts,
            "share": counts / len(recorded),
            "cumulative": counts.cumsum() / len(recorded),
            "layer_accuracy": [recorded.accuracy(all_at) for all_at in _depths(recorded)],
            "layer_agreement": [1 - recorded.disagrees(all_at).mean() for all_at in _depths(recorded)],
        }
    )


def depths_table(model: ExitModel, recorded: Recorded, raced: Raced) -> pd.DataFrame:
    """Return a row for the model truncated at each layer: what it scores, wins and weighs."""
    return pd.DataFrame(
        {
            "layer": range(1, recorded.depth + 1),
            "accuracy": [recorded.accuracy(all_at) for all_at in _depths(recorded)],
            "disagreement": [recorded.disagrees(all_at).mean() for all_at in _depths(recorded)],
            "measured": [raced.truncated(layer) for layer in range(1, recorded.depth + 1)],
            "parameters": [_parameters(model, layer) for layer in range(1, recorded.depth + 1)],
        }
    )


def _depths(recorded: Recorded) -> list[Layers]:
    return [np.full(len(recorded), layer) for layer in range(1, recorded.depth + 1)]


def _parameters(model: ExitModel, layer: int) -> int:
    """Return the weights of a model without the blocks after a layer."""
    blocks = model.layered.stack.blocks
    gone = set(blocks[layer:]) - set(blocks[:layer])
    dropped = nn.ModuleList(model.model.get_submodule(path) for path in gone)
    return parameters(model.model) - parameters(dropped)

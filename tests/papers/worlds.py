"""Trained models that are made up: each metric of each kind of training, seed by seed, as a judge reads it."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from layerscope.papers.assets import Assets
from layerscope.papers.vision import SMALL, Exiting, Profiled, Trained

DEPTH = 12
LAYERS = pd.RangeIndex(1, DEPTH + 1)


def rising(low, high, power=1.0):
    """Return a curve by layer that rises from low to high."""
    return low + (high - low) * (np.arange(1, DEPTH + 1) / DEPTH) ** power


@dataclass
class MadeUp:
    """What stands for a run: its metrics by name."""

    metrics: dict

    def metric(self, name, **_):
        values = self.metrics[name]
        if np.ndim(values) == 2:
            layers = range(DEPTH + 1)
            return pd.DataFrame(values, index=layers, columns=layers)
        return pd.Series(values, index=LAYERS) if np.ndim(values) else pd.Series([values], index=[DEPTH])


class World(Assets):
    """Assets without folders: `about` returns the metrics of a training (objective, options, depth, seed)."""

    def __init__(self, about, settings=SMALL):
        super().__init__(Path("made-up"), replace(settings, seeds=5))
        self.about = about

    def get(self, asset):
        return Made(asset, self.about)


@dataclass
class Made:
    """What stands for the folder of an asset."""

    asset: object
    about: object

    def __truediv__(self, name):
        return self

    def opened(self):
        model = self.asset.model if isinstance(self.asset, (Profiled, Exiting)) else self.asset
        assert isinstance(model, Trained)
        noise = np.random.default_rng(model.seed).normal(0, 1e-3)
        found = self.about(model)
        return MadeUp({name: values + noise for name, values in found.items()})

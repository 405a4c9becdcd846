"""Trained models that are made up: each metric of each kind of training, seed by seed, as a judge reads it."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from layerscope_papers import catalogue
from layerscope_papers.assets import Assets
from layerscope_papers.verdicts import decide
from layerscope_papers.vision import SMALL, Exiting, Learnt

DEPTH = 12
LAYERS = pd.RangeIndex(1, DEPTH + 1)


def rising(low, high, power=1.0):
    """Return a curve by layer that rises from low to high."""
    return low + (high - low) * (np.arange(1, DEPTH + 1) / DEPTH) ** power


@dataclass
class MadeUp:
    """What stands for a run: its metrics by name."""

    metrics: dict

    @property
    def depth(self):
        return self.metrics["states"].shape[1] - 1

    def pooled(self, layer):
        return self.metrics["states"][:, layer]

    def measure(self, name):
        return pd.Series(
            self.metrics[name] * (1 + np.random.default_rng(0).normal(0, 1e-3)), index=LAYERS
        )

    def metric(self, name, **_):
        values = self.metrics[name]
        if np.ndim(values) == 2:
            layers = range(DEPTH + 1)
            return pd.DataFrame(values, index=layers, columns=layers)
        return (
            pd.Series(values, index=LAYERS)
            if np.ndim(values)
            else pd.Series([values], index=[DEPTH])
        )


class World(Assets):
    """Assets without folders: `about` returns the metrics of a training (objective, options, depth, seed)."""

    def __init__(self, about, settings=SMALL):
        super().__init__(
            Path("made-up"), replace(settings, seeds=5) if hasattr(settings, "seeds") else settings
        )
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
        """Return the run, the history or the report of exits, with a little noise of the model's seed."""
        model = getattr(self.asset, "model", self.asset)
        noise = np.random.default_rng(model.seed).normal(0, 1e-3)
        found = self.about(model)
        if isinstance(self.asset, Exiting):
            return found["exits"]
        if isinstance(self.asset, Learnt):
            found["layer_accuracy"] = np.where(found["effective_depth"] <= LAYERS, 1.0, 0.5)
        return MadeUp({name: values + noise for name, values in found.items() if name != "exits"})


def verdicts(name, assets):
    """Return the verdict on each claim of a recipe."""
    recipe = catalogue.recipes()[name]
    found = recipe.judge(assets)
    assert set(found.intervals) == {claim.name for claim in recipe.claims}
    return {
        claim.name: decide(
            claim, found.intervals[claim.name], found.inapplicable.get(claim.name, "")
        ).word
        for claim in recipe.claims
    }

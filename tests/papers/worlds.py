"""Trained models that are made up: each metric of each kind of training, seed by seed, as a judge reads it."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
import tiny
from transformers import GPT2Config, GPT2LMHeadModel

from layerscope_papers import catalogue
from layerscope_papers.assets import Assets
from layerscope_papers.verdicts import decide
from layerscope_papers.vision import SMALL, Exiting, Predicted, Vision

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

    def table(self):
        """Return the accuracy of the last layer at four steps of a training."""
        values = self.metrics["by_step"]
        return pd.DataFrame(
            {
                "metric": "layer_accuracy",
                "layer": DEPTH,
                "step": range(len(values)),
                "value": values,
            }
        )

    def measure(self, name):
        return pd.Series(
            self.metrics[name] * (1 + np.random.default_rng(0).normal(0, 1e-3)),
            index=LAYERS,
        )

    def metric(self, name, **_):
        values = self.metrics[name]
        if np.ndim(values) == 2:
            layers = range(DEPTH + 1)
            return pd.DataFrame(values, index=layers, columns=layers)
        return pd.Series(values, index=LAYERS)


def predictions(images, about, of_training):
    """Return what a lens reads of images: right for a share of the training images, else the chance of the label."""
    rows = []
    for i, (sample, label) in enumerate(zip(images.names, images.labels, strict=True)):
        for layer in range(DEPTH + 1):
            row = {
                "sample": sample,
                "layer": layer,
                "prediction": str(label),
                "probability": 0.0,
            }
            at = max(layer, 1) - 1
            if of_training:
                right = (i + 0.5) / len(images) < about["training_accuracy"][at]
                row["prediction"] = str(label) if right else "another"
            else:
                row["probability"] = about["label_probability"][at]
            rows.append(row)
    return pd.DataFrame(rows)


def spoken(folder, seed):
    """Return the folder of a language model of 128 positions."""
    config = GPT2Config(**tiny.gpt2().config.to_diff_dict() | {"n_positions": 128})
    return str(tiny.saved(tiny.seeded(GPT2LMHeadModel, config, seed), folder))


class World(Assets):
    """Assets without folders: `about` returns the metrics of a training (objective, options, depth, seed)."""

    def __init__(self, about, settings=SMALL):
        if hasattr(settings, "seeds"):
            settings = replace(settings, seeds=5)
        if isinstance(settings, Vision):
            settings = replace(settings, depth=DEPTH)
        super().__init__(Path("made-up"), settings)
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
        made = MadeUp(
            {name: values + noise for name, values in found.items() if name != "exits"}
        )
        if isinstance(self.asset, Predicted):
            images = self.asset.images(None)
            images = images.take(range(len(found.get("states", images.samples))))
            made.grid = predictions(images, found, self.asset.of_training)
        return made


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

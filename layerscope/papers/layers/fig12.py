"""L-fig12: larger models compress more in the middle, are smoother and more invariant."""

from __future__ import annotations

import math

import pandas as pd

from layerscope.papers import drawing, released
from layerscope.papers.assets import Assets
from layerscope.papers.intervals import slope
from layerscope.papers.recipe import LAYERS, Claim, Evidence, Number, Recipe

JUDGED = {"compression": ("prompt_entropy", "maxEntropy"), "smoothness": ("curvature", "raw"),
          "invariance": ("infonce", "raw")}  # fmt: skip


def middle(curve: pd.Series) -> float:
    """Return the mean of a metric over the middle third of the layers."""
    return float(released.thirds(released.blocks(curve))[1].mean())


def judge(assets: Assets) -> Evidence:
    """Fit each metric in the middle of the models against the logarithm of their size."""
    frame = released.metrics(assets)
    frame = frame[(frame["dataset"] == "wikitext") & frame["revision"].isin(("", "main"))]
    found, numbers, shapes, notes = {}, [], {}, []
    for name, (metric, variant) in JUDGED.items():
        curves = released.curves(frame, metric, variant).droplevel(["revision", "dataset"])
        known = {model: middle(curves.loc[model]) for model in released.PARAMETERS if model in curves.index}
        known = {model: value for model, value in known.items() if math.isfinite(value)}
        found[name] = slope([math.log10(released.PARAMETERS[model]) for model in known], list(known.values()))
        numbers += [Number(f"{metric}, middle of {model}", value) for model, value in known.items()]
        if metric == "prompt_entropy":
            shapes = {model: curves.loc[model].dropna() for model in known}
        missing = [model for model in released.PARAMETERS if model not in known]
        notes += [f"{metric}: no value of {', '.join(missing)}."] if missing else []
    return Evidence(
        found,
        numbers,
        [drawing.chart("Prompt entropy by size, WikiText", "share of the maximum", shapes, True)],
        notes,
    )


RECIPE = Recipe(
    "L-fig12", LAYERS, "Larger models compress more in the middle, are smoother and more invariant",
    (
        Claim(
            "compression", "The larger the model, the lower the prompt entropy of its middle layers.",
            "slope of prompt entropy, as a share of its maximum, per tenfold size; mean of the middle third "
            "of the layers",
            0.0, "below", "models",
        ),
        Claim(
            "smoothness", "The larger the model, the lower the curvature of its middle layers.",
            "slope of curvature, as released, per tenfold size; mean of the middle third of the layers",
            0.0, "below", "models",
        ),
        Claim(
            "invariance", "The larger the model, the lower the InfoNCE loss of its middle layers.",
            "slope of the InfoNCE loss per tenfold size, nats; mean of the middle third of the layers",
            0.0, "below", "models",
        ),
    ),
    judge, {"published": None},
    lacks={
        "small": "language models of several sizes",
        "paper": "Pythia 14M to 1B on WikiText-103, from the hub",
    },
    note=released.NOTE,
)  # fmt: skip

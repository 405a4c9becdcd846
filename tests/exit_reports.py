"""Reports of exits made of recorded layers: a model whose layers agree with its last the more, the deeper they are."""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import torch

from layerscope.early_exit.exit_report import ExitReport
from layerscope.early_exit.pipeline import curve_table, layer_table
from layerscope.early_exit.predictions import Recorded, sureness

THRESHOLDS = (0.6, 0.8, 0.9, 0.97, math.inf)
HOSTILE = "</script><script>window.hit = 1</script><b>%{y}</b>"


def recorded(samples=400, depth=6, classes=3):
    draw = torch.Generator().manual_seed(0)
    truth = torch.randint(0, classes, (samples,), generator=draw)
    signal = (
        torch.nn.functional.one_hot(truth, classes).double()[:, None]
        * torch.arange(1, depth + 1)[:, None]
    )
    logits = 0.6 * signal + 1.5 * torch.randn(
        samples, depth, classes, generator=draw, dtype=torch.float64
    )
    return Recorded(
        classes,
        sureness(logits).numpy(),
        logits.argmax(-1).numpy(),
        truth.numpy(),
    )


def made(chosen=0.9, exits=(2, 4), labelled=True, **more):
    """Return a report; speeds are those of a model whose layers cost the same, 4 % below what depth allows."""
    rec = recorded()
    if not labelled:
        rec = replace(rec, labels=None)
    depth, samples = rec.depth, len(rec)
    leaves = {threshold: rec.leaves(exits, threshold) for threshold in THRESHOLDS}
    speeds = {
        ("threshold", threshold): (0.98 * depth / layers.mean() / 1.02, 0.02)
        for threshold, layers in leaves.items()
    }
    curve = curve_table(
        rec, exits, THRESHOLDS, chosen, SimpleNamespace(speedups=speeds)
    )
    row = curve[curve["chosen"]].iloc[0]
    places = range(1, depth + 1)
    truncated = [np.full(samples, layer) for layer in places]
    depths = {
        "layer": places,
        "accuracy": [rec.accuracy(layers) for layers in truncated],
        "disagreement": [*map(rec.disagreement, truncated)],
        "measured": [math.nan, *(depth / layer for layer in places[1:])],
        "error": [math.nan, *[0.03] * (depth - 1)],
        "parameters": [1000 + 500 * layer for layer in places],
    }
    facts = {
        "model": "tiny",
        "depth": depth,
        "classes": 3,
        "exits": exits,
        "threshold": chosen,
        "batch_size": 32,
        "samples": samples,
        "design": 100,
        "data": "held out",
        "machine": "2 cores, float32",
        "goal": "With 95 % confidence at most 1 % of predictions differ.",
        "calibration": {
            "n": 300,
            "p_value": 0.013,
            "goal": {"confidence": 0.95, "max_disagreement": 0.01},
        },
        "pays": True,
        "verdict": "pays: 1.40× ±0.02 measured",
        "measured": row["measured"],
        "path": None,
        "accuracy": row["accuracy"],
        "plain_accuracy": rec.accuracy(rec.whole),
        "disagreement": row["disagreement"],
        "plain_milliseconds": 3.21,
        "error": 0.02,
        "curve": curve,
        "layers": layer_table(rec, exits, leaves[chosen]),
        "depths": pd.DataFrame(depths),
        "notes": ("drawn with seed 0",),
    }
    return ExitReport(**(facts | more))


def never():
    """Return the report of a model no sample of which leaves early."""
    return made(
        math.inf,
        (),
        pays=False,
        verdict="does not pay: 1.00× measured; use the plain model",
    )

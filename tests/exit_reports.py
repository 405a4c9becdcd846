"""Reports of exits made of recorded layers: a model whose layers agree with its last the more, the deeper they are."""

import math

import numpy as np
import pandas as pd
import torch

from layerscope.early_exit.exit_report import ExitReport
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


def made(
    chosen=0.9,
    exits=(2, 4),
    labelled=True,
    **more,
):
    """Return a report; speeds are those of a model whose layers cost the same, 4 % below what depth allows."""
    rec = recorded()
    depth, samples = rec.depth, len(rec)

    def accuracy(predicted):
        return float((predicted == rec.labels).mean()) if labelled else math.nan

    curve, leaves = [], rec.leaves(exits, chosen)
    for threshold in THRESHOLDS:
        layers = rec.leaves(exits, threshold)
        speed = depth * samples / layers.sum()
        curve.append(
            {
                "threshold": threshold,
                "chosen": threshold == chosen,
                "mean_layer": layers.mean(),
                "exit_speedup": speed,
                "measured": 0.98 * speed / 1.02,
                "error": 0.02,
                "accuracy": accuracy(rec.predicted(layers)),
                "disagreement": rec.disagrees(layers).mean(),
            }
        )
    counts = np.bincount(leaves, minlength=depth + 1)[1:]
    agree = [float((rec.predictions[:, k] == rec.full).mean()) for k in range(depth)]
    scores = [accuracy(rec.predictions[:, k]) for k in range(depth)]
    places = list(range(1, depth + 1))
    layers = {
        "layer": places,
        "checked": [k in exits for k in places],
        "leaving": counts,
        "share": counts / samples,
        "cumulative": counts.cumsum() / samples,
    }
    depths = {
        "layer": places,
        "accuracy": scores,
        "disagreement": 1 - np.array(agree),
        "measured": [math.nan, *(depth / k for k in places[1:])],
        "error": [math.nan, *[0.03] * (depth - 1)],
        "parameters": [1000 + 500 * k for k in places],
    }
    row = next(row for row in curve if row["chosen"])
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
        "accuracy": row["accuracy"] if labelled else None,
        "plain_accuracy": scores[-1] if labelled else None,
        "disagreement": row["disagreement"],
        "plain_milliseconds": 3.21,
        "error": 0.02,
        "curve": pd.DataFrame(curve),
        "layers": pd.DataFrame(layers),
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

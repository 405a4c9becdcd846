"""How the released metrics run through the layers: valleys, their depth by size, and their making in training."""

import math

import numpy as np
import pandas as pd

from layerscope_papers import drawing, released
from layerscope_papers.assets import Assets
from layerscope_papers.recipe import Evidence, Number, mean, recipe, slope

BIDIRECTIONAL = ("bert-base", "bert-large")
MODEL = "Pythia-410m"
OVER_TRAINING = {
    "prompt_entropy": "maxEntropy",
    "lidar": "maxEntropy",
    "dime": "maxEntropy",
    "infonce": "raw",
}
LATE = 16_000
"""After this step a change counts as late."""
BY_SIZE = {"compression": ("prompt_entropy", "maxEntropy"), "smoothness": ("curvature", "raw"),
           "invariance": ("infonce", "raw")}  # fmt: skip


@recipe("L-fig2", scales=released.SCALES)
def valleys(assets: Assets) -> Evidence:
    """Take the depth of each valley: of a model over data sets, of bidirectional models over models."""
    frame = released.metrics(assets)
    frame = frame[frame["revision"].isin(("", "main"))]
    entropy = released.curves(frame, "prompt_entropy", "maxEntropy")
    depth = entropy.apply(released.valley, axis=1)
    wiki = entropy.xs("wikitext", level="dataset")
    least = min(depth.xs("wikitext", level="dataset").drop(list(BIDIRECTIONAL), level="model"))
    found = {model: mean(depth.xs(model, level="model").tolist()) for model in released.SCORED}
    flat = [least - depth[model].loc[:, "wikitext"].item() for model in BIDIRECTIONAL]
    known = [*released.PARAMETERS, *BIDIRECTIONAL]
    by_model = {model: wiki.loc[model].iloc[0].dropna() for model in known if model in wiki.index}
    return Evidence(
        found | {"bidirectional": mean(flat)},
        [
            Number(f"{model}, valley on WikiText", depth[model].loc[:, "wikitext"].item())
            for model in by_model
        ],
        [
            drawing.chart(
                "Prompt entropy by layer, WikiText", "share of the maximum", by_model, by_depth=True
            )
        ],
    )


@recipe("L-fig4", scales=released.SCALES)
def changed_by_training(assets: Assets) -> Evidence:
    """Compare how much each third changes between neighbouring checkpoints, by metric (figures 4 and 11)."""
    frame = released.metrics(assets)
    tables = {metric: by_step(frame, metric) for metric in OVER_TRAINING}
    middle, early, numbers = [], [], []
    for metric, table in tables.items():
        moved = table.diff().abs().iloc[1:] / (table.to_numpy().max() - table.to_numpy().min())
        total = moved.sum()
        first, inner, last = released.thirds(total)
        middle.append(float(inner.mean() - np.mean([first.mean(), last.mean()])))
        late = moved[moved.index > LATE].sum() / total
        first_late, *rest = released.thirds(late)
        early.append(float(np.mean([part.mean() for part in rest]) - first_late.mean()))
        for name, part in zip(("first", "middle", "last"), (first, inner, last), strict=True):
            numbers.append(
                Number(f"{metric}, change over training, {name} third", float(part.mean()))
            )
    entropy = tables["prompt_entropy"]
    return Evidence(
        {"middle": mean(middle), "early": mean(early)},
        numbers,
        [
            drawing.heat_map(
                "Prompt entropy by step and layer, WikiText", entropy, down="step", across="layer"
            )
        ],
    )


def by_step(frame: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Return a metric as step × layer, layers 1 … L, in the order of training."""
    rows = frame[(frame["model"] == MODEL) & (frame["dataset"] == "wikitext")]
    found = released.curves(rows, metric, OVER_TRAINING[metric]).reset_index(
        ["model", "dataset"], drop=True
    )
    found = found[found.index.str.startswith("step")]
    found.index = found.index.str.removeprefix("step").astype(int)
    return found.sort_index().drop(columns=0, errors="ignore").dropna(axis=1)


@recipe("L-fig12", scales=released.SCALES)
def larger_models(assets: Assets) -> Evidence:
    """Fit each metric in the middle of the models against the logarithm of their size."""
    frame = released.metrics(assets)
    frame = frame[(frame["dataset"] == "wikitext") & frame["revision"].isin(("", "main"))]
    found, numbers, shapes, notes = {}, [], {}, []
    for name, (metric, variant) in BY_SIZE.items():
        curves = released.curves(frame, metric, variant).droplevel(["revision", "dataset"])
        known = {
            model: middle(curves.loc[model])
            for model in released.PARAMETERS
            if model in curves.index
        }
        known = {model: value for model, value in known.items() if math.isfinite(value)}
        found[name] = slope(
            [math.log10(released.PARAMETERS[model]) for model in known], list(known.values())
        )
        numbers += [Number(f"{metric}, middle of {model}", value) for model, value in known.items()]
        if metric == "prompt_entropy":
            shapes = {model: curves.loc[model].dropna() for model in known}
        missing = [model for model in released.PARAMETERS if model not in known]
        notes += [f"{metric}: no value of {', '.join(missing)}."] if missing else []
    plot = drawing.chart(
        "Prompt entropy by size, WikiText", "share of the maximum", shapes, by_depth=True
    )
    return Evidence(found, numbers, [plot], notes)


def middle(curve: pd.Series) -> float:
    """Return the mean of a metric over the middle third of the layers."""
    return float(released.thirds(released.blocks(curve))[1].mean())

"""How the released metrics run through the layers: valleys, their depth by size, and their making in training."""

import math

import numpy as np
import pandas as pd

from layerscope.papers import drawing, released
from layerscope.papers.assets import Assets
from layerscope.papers.recipe import Claim, Evidence, Number, mean, slope

BIDIRECTIONAL = ("bert-base", "bert-large")
MODEL = "Pythia-410m"
OVER_TRAINING = {"prompt_entropy": "maxEntropy", "lidar": "maxEntropy", "dime": "maxEntropy", "infonce": "raw"}
LATE = 16_000
"""After this step a change counts as late."""
BY_SIZE = {"compression": ("prompt_entropy", "maxEntropy"), "smoothness": ("curvature", "raw"),
           "invariance": ("infonce", "raw")}  # fmt: skip


@released.published(
    "L-fig2", "A valley of prompt entropy in the middle of autoregressive models",
    *(
        Claim(
            model, f"In {model}, prompt entropy is lower in the middle third of the layers than in the others.",
            "prompt entropy as a share of its maximum, first and last third minus middle third", 0.0, "above",
            "data sets",
        )
        for model in released.SCORED
    ),
    Claim(
        "bidirectional",
        "Bidirectional models are flat: none has a valley as deep as the shallowest of the autoregressive models.",
        "depth of the shallowest Pythia valley minus that of each BERT, share of the maximum, on WikiText",
        0.0, "above", "models",
        decided_by="a third bidirectional model; the authors released values of two",
    ),
    small="an autoregressive model that has the valley",
    paper="Pythia-410M, Mamba-370M and BERT on WikiText-103, from the hub",
    note=released.NOTE + " (prompt entropy: tokens centred, then scaled to unit length)",
)  # fmt: skip
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
        [Number(f"{model}, valley on WikiText", depth[model].loc[:, "wikitext"].item()) for model in by_model],
        [drawing.chart("Prompt entropy by layer, WikiText", "share of the maximum", by_model, by_depth=True)],
    )


@released.published(
    "L-fig4", "Training changes the middle layers most; early layers settle first",
    Claim(
        "middle", "Over training, metrics change more in the middle third of the layers than in the others.",
        "sum of changes between checkpoints, share of the metric's range, middle third minus the other two",
        0.0, "above", "metrics",
    ),
    Claim(
        "early",
        f"Early layers settle first: less of their change comes after step {LATE:,} than of the other layers'.",
        f"share of a layer's change that comes after step {LATE:,}, last two thirds minus the first",
        0.0, "above", "metrics",
    ),
    small="a language model with checkpoints of its training (layerscope profile and compare draw them)",
    paper="the checkpoints of Pythia-410M on WikiText-103, from the hub",
)  # fmt: skip
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
            numbers.append(Number(f"{metric}, change over training, {name} third", float(part.mean())))
    entropy = tables["prompt_entropy"]
    return Evidence(
        {"middle": mean(middle), "early": mean(early)},
        numbers,
        [drawing.heat_map("Prompt entropy by step and layer, WikiText", entropy, down="step", across="layer")],
    )


def by_step(frame: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Return a metric as step × layer, layers 1 … L, in the order of training."""
    rows = frame[(frame["model"] == MODEL) & (frame["dataset"] == "wikitext")]
    found = released.curves(rows, metric, OVER_TRAINING[metric]).reset_index(["model", "dataset"], drop=True)
    found = found[found.index.str.startswith("step")]
    found.index = found.index.str.removeprefix("step").astype(int)
    return found.sort_index().drop(columns=0, errors="ignore").dropna(axis=1)


@released.published(
    "L-fig12", "Larger models compress more in the middle, are smoother and more invariant",
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
    small="language models of several sizes",
    paper="Pythia 14M to 1B on WikiText-103, from the hub",
)  # fmt: skip
def larger_models(assets: Assets) -> Evidence:
    """Fit each metric in the middle of the models against the logarithm of their size."""
    frame = released.metrics(assets)
    frame = frame[(frame["dataset"] == "wikitext") & frame["revision"].isin(("", "main"))]
    found, numbers, shapes, notes = {}, [], {}, []
    for name, (metric, variant) in BY_SIZE.items():
        curves = released.curves(frame, metric, variant).droplevel(["revision", "dataset"])
        known = {model: middle(curves.loc[model]) for model in released.PARAMETERS if model in curves.index}
        known = {model: value for model, value in known.items() if math.isfinite(value)}
        found[name] = slope([math.log10(released.PARAMETERS[model]) for model in known], list(known.values()))
        numbers += [Number(f"{metric}, middle of {model}", value) for model, value in known.items()]
        if metric == "prompt_entropy":
            shapes = {model: curves.loc[model].dropna() for model in known}
        missing = [model for model in released.PARAMETERS if model not in known]
        notes += [f"{metric}: no value of {', '.join(missing)}."] if missing else []
    plot = drawing.chart("Prompt entropy by size, WikiText", "share of the maximum", shapes, by_depth=True)
    return Evidence(found, numbers, [plot], notes)


def middle(curve: pd.Series) -> float:
    """Return the mean of a metric over the middle third of the layers."""
    return float(released.thirds(released.blocks(curve))[1].mean())

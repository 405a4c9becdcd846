"""How the released metrics run through the layers: valleys, their depth by size, and their making in training.

A curve by layer is cut into thirds. Its valley is as deep as the middle third lies below the mean of
the other two, so that a curve which rises or falls all the way has none:

    layers       first    middle   last     valley
    a valley     0.9      0.5      0.7      (0.9 + 0.7) / 2 − 0.5 = 0.3
    a slope      0.9      0.7      0.5      0

Values are as released, each in the variant that the authors' own figures show.
"""

import math
from collections.abc import Callable, Iterator

import numpy as np
import pandas as pd

from layerscope.show import Chart
from layerscope_papers import drawing, released
from layerscope_papers.assets import Assets
from layerscope_papers.intervals import FEWEST, mean, slope
from layerscope_papers.recipe import Evidence, Number, recipe

BIDIRECTIONAL = ("bert-base", "bert-large")
MODEL = "Pythia-410m"
OVER_TRAINING = {
    "prompt_entropy": "maxEntropy",
    "lidar": "maxEntropy",
    "dime": "maxEntropy",
    "infonce": "raw",
}
ARCHITECTURES = ("Pythia-410m", "mamba-370m", "bert-base", "bert-large")
BY_DEPTH = {
    "prompt_entropy": ("Prompt entropy", "maxEntropy", "share of the maximum"),
    "curvature": ("Curvature", "raw", "as released"),
    "infonce": ("InfoNCE", "raw", "nats"),
    "lidar": ("LiDAR", "maxEntropy", "as released"),
    "dime": ("DiME", "maxEntropy", "as released"),
}
"""By metric: title, variant and unit; as released, LiDAR and DiME exceed the maximum that they are divided by."""
LATE = 16_000
"""After this step a change counts as late."""
PRINTED_SIZES = ("Pythia-14m", "Pythia-70m", "Pythia-160m", "Pythia-410m", "Pythia-1b")
"""The models of figure 12."""
QUANTITIES = {
    "compression": "depth of the dip",
    "smoothness": "curvature",
    "invariance": "LiDAR",
}
"""What is measured, by claim of figure 12."""


@recipe("L-fig2", scales=released.SCALES)
def by_architecture(assets: Assets) -> Evidence:
    """Take the depth of each valley: of a model over data sets, of other architectures over models.

    - a size of Pythia: the depth of its valley, over data sets;
    - bidirectional: how much deeper each size of Pythia dips than the deeper of the two BERTs;
    - state space: how much less each Mamba dips than the size of Pythia that dips least;
    - retains: how far the level of each Mamba lies below the lower of the two BERTs.
    """
    frame = released.at_end(released.metrics(assets))
    entropy = released.curves(frame, "prompt_entropy", "maxEntropy")
    depths = released.valleys(entropy).droplevel("revision")
    intervals = {}
    for model in released.PYTHIA:
        by_data = depths.xs(model, level="model")
        intervals[model] = mean(by_data.tolist())
    models = [*released.PARAMETERS, *BIDIRECTIONAL, *released.MAMBA]
    depth = depths.xs("wikitext", level="dataset").reindex(models).dropna()
    level = _on_wikitext(frame, "prompt_entropy", "maxEntropy").apply(_level, axis=1)
    sizes = depth.reindex(released.PARAMETERS).dropna()
    mamba = depth.reindex(released.MAMBA).dropna()
    bert = list(BIDIRECTIONAL)
    below = level[bert].min() - level[mamba.index]
    intervals |= {
        "bidirectional": mean((sizes - depth[bert].max()).tolist()),
        "state space": mean((sizes.min() - mamba).tolist()),
        "retains": mean(below.tolist()),
    }
    numbers = []
    for model, each in depth.items():
        numbers.append(Number(f"{model}, valley on WikiText", each))
    return Evidence(intervals, numbers, list(_architectures(frame)), _gaps(frame))


def _architectures(frame: pd.DataFrame) -> Iterator[Chart]:
    """Return entropy, curvature and the invariance metrics of one or two models of each architecture by depth."""
    entropy = _on_wikitext(frame, "prompt_entropy", "maxEntropy")
    for metric, (title, variant, unit) in BY_DEPTH.items():
        curves = _on_wikitext(frame, metric, variant).reindex(ARCHITECTURES)
        shown = {}
        for model, curve in curves.iterrows():
            # layers and models without a value stay: each lies at its depth, in its colour
            last = entropy.loc[model].last_valid_index()
            shown[model] = curve.reindex(range(1, last + 1))
        title = f"{title} by depth, WikiText"
        yield drawing.chart(title, unit, shown, by_depth=True)


def _gaps(frame: pd.DataFrame) -> list[str]:
    """Return a sentence for each of the models drawn whose curvature has no value at some layers."""
    curves = _on_wikitext(frame, "curvature", "raw").reindex(ARCHITECTURES)
    scored = curves.loc[:, 1:].notna().sum(axis=1)
    entropy = _on_wikitext(frame, "prompt_entropy", "maxEntropy").loc[:, 1:]
    notes = []
    for model, count in scored.items():
        depth = int(entropy.loc[model].count())
        if count < depth:
            notes.append(
                f"Curvature of {model}: a number at {count} of {depth} layers."
            )
    return notes


def _on_wikitext(frame: pd.DataFrame, metric: str, variant: str) -> pd.DataFrame:
    """Return a released metric as model × layer."""
    curves = released.curves(frame, metric, variant, dataset="wikitext")
    return curves.droplevel(["revision", "dataset"])


@recipe("L-fig4", scales=released.SCALES)
def changed_by_training(assets: Assets) -> Evidence:
    """Compare how much each third changes between neighbouring checkpoints, by metric (figures 4 and 11).

    A change is a share of the metric's range over all steps and layers, so that metrics count alike.

    - middle: how much more the middle third changes in all than the other two;
    - falls: how the entropy of each layer of the middle third goes with the step;
    - lidar: how far LiDAR of the final model lies below the lower of the outer thirds in the middle;
    - early: how much less the first third changes after the initial phase than the other two.
    """
    frame = released.metrics(assets)
    tables = {metric: by_step(frame, metric) for metric in OVER_TRAINING}
    middle = []
    early = []
    numbers = []
    for metric, table in tables.items():
        changes = table.diff().abs() / np.ptp(table.to_numpy())
        total = released.thirds(changes.sum())
        late = released.thirds(changes[changes.index > LATE].sum())
        middle.append(total["middle"] - total.drop("middle").mean())
        early.append(late.drop("first").mean() - late["first"])
        for third, change in total.items():
            title = f"{metric}, change over training, {third} third"
            numbers.append(Number(title, change))
    entropy = tables["prompt_entropy"]
    _, inner, _ = np.array_split(entropy.columns, 3)
    falls = entropy[inner].corrwith(entropy.index.to_series(), method="spearman")
    intervals = {
        "middle": mean(middle),
        "falls": mean(falls.tolist()),
        "lidar": mean(_lidar_dips(frame)),
        "early": mean(early),
    }
    title = "Prompt entropy by step and layer, WikiText"
    plot = drawing.heat_map(title, entropy, down="step", across="layer")
    return Evidence(intervals, numbers, [plot])


def _lidar_dips(frame: pd.DataFrame) -> list[float]:
    """Return for each data set how far LiDAR in the middle lies below the lower of the other thirds.

    Below both, as a minimum in the middle has it, and not below their mean, as a valley has.
    """
    final = released.at_end(frame[frame["model"] == MODEL])
    dips = []
    for _, curve in released.curves(final, "lidar", "maxEntropy").iterrows():
        of_third = released.thirds(released.blocks(curve))
        dips.append(of_third.drop("middle").min() - of_third["middle"])
    return dips


def by_step(frame: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Return a metric as step × layer, layers 1 … L, in the order of training.

    Layers that lack a value at some step are left out, so that all steps have the same.
    """
    rows = frame[frame["model"] == MODEL]
    curves = released.curves(rows, metric, OVER_TRAINING[metric], dataset="wikitext")
    curves = curves.droplevel(["model", "dataset"])
    curves = curves[curves.index.str.startswith("step")]
    curves.index = curves.index.str.removeprefix("step").astype(int)
    curves = curves.drop(columns=0, errors="ignore")
    return curves.sort_index().dropna(axis=1)


@recipe("L-fig12", scales=released.SCALES)
def larger_models(assets: Assets) -> Evidence:
    """Fit the dip of entropy, curvature and LiDAR of the models of figure 12 against their size.

    Each is a straight line over the logarithm of the number of parameters. A metric that too few of
    the models have at every layer fits none: a mean over some layers is not that of the model.
    """
    frame = released.at_end(released.metrics(assets))
    measured = {
        "compression": _by_model(frame, "prompt_entropy", released.valley),
        "smoothness": _by_model(frame, "curvature", _level, "raw"),
        "invariance": _by_model(frame, "lidar", _level),
    }
    intervals = {}
    numbers = []
    inapplicable = {}
    for claim, values in measured.items():
        quantity = QUANTITIES[claim]
        printed = values.reindex(PRINTED_SIZES).dropna()
        sizes = [math.log10(released.PARAMETERS[model]) for model in printed.index]
        intervals[claim] = slope(sizes, printed.tolist())
        for model, value in values.items():
            numbers.append(Number(f"{quantity} of {model}", value))
        if len(printed) < FEWEST:
            inapplicable[claim] = (
                f"{quantity} at every layer of at least {FEWEST} of these models, where {len(printed)} have it"
            )
    entropy = _on_wikitext(frame, "prompt_entropy", "maxEntropy")
    shapes = {}
    for model in entropy.index.intersection(list(released.PARAMETERS)):
        shapes[model] = entropy.loc[model].dropna()
    title = "Prompt entropy by size, WikiText"
    plot = drawing.chart(title, "share of the maximum", shapes, by_depth=True)
    notes = ["Models above 1B are shown and enter no slope, as the figure ends there."]
    return Evidence(intervals, numbers, [plot], notes, inapplicable)


def _by_model(
    frame: pd.DataFrame,
    metric: str,
    summary: Callable[[pd.Series], float],
    variant: str = "maxEntropy",
) -> pd.Series:
    """Return a summary of a metric's curve for each size of Pythia that has a value at every layer."""
    curves = _on_wikitext(frame, metric, variant)
    values = {}
    for model in curves.index.intersection(list(released.PARAMETERS)):
        curve = curves.loc[model]
        layers = curve.loc[1 : curve.last_valid_index()]
        if layers.notna().all():
            values[model] = summary(curve)
    return pd.Series(values, dtype=float)


def _level(curve: pd.Series) -> float:
    """Return the mean of a metric over the layers."""
    return float(released.blocks(curve).mean())

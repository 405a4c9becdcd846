"""How the released metrics run through the layers: valleys, their depth by size, and their making in training."""

import math
from collections.abc import Callable, Iterator

import numpy as np
import pandas as pd

from layerscope.show import Chart
from layerscope_papers import drawing, released
from layerscope_papers.assets import Assets
from layerscope_papers.recipe import FEWEST, Evidence, Number, mean, recipe, slope

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
    "prompt_entropy": ("maxEntropy", "share of the maximum"),
    "curvature": ("raw", "as released"),
    "infonce": ("raw", "nats"),
    "lidar": ("maxEntropy", "share of the maximum"),
    "dime": ("maxEntropy", "share of the maximum"),
}
LATE = 16_000
"""After this step a change counts as late."""
PRINTED_SIZES = ("Pythia-14m", "Pythia-70m", "Pythia-160m", "Pythia-410m", "Pythia-1b")
"""The models of figure 12."""


@recipe("L-fig2", scales=released.SCALES)
def valleys(assets: Assets) -> Evidence:
    """Take the depth of each valley: of a model over data sets, of other architectures over models."""
    frame = released.metrics(assets)
    frame = frame[frame["revision"].isin(("", "main"))]
    entropy = released.curves(frame, "prompt_entropy", "maxEntropy")
    depth = entropy.apply(released.valley, axis=1)
    of_model = depth.xs("wikitext", level="dataset").droplevel("revision")
    level = _on_wikitext(frame, "prompt_entropy", "maxEntropy").apply(_level, axis=1)
    models = [*released.PARAMETERS, *BIDIRECTIONAL, *released.MAMBA]
    models = [model for model in models if model in of_model.index]
    mamba = [model for model in released.MAMBA if model in models]
    sizes = [model for model in released.PARAMETERS if model in models]
    deepest_bert = max(of_model[model] for model in BIDIRECTIONAL)
    retained = min(level[model] for model in BIDIRECTIONAL)
    intervals = {
        model: mean(depth.xs(model, level="model").tolist())
        for model in released.PYTHIA
    }
    intervals |= {
        "bidirectional": mean([of_model[size] - deepest_bert for size in sizes]),
        "state space": mean(
            [min(of_model[sizes]) - of_model[model] for model in mamba]
        ),
        "retains": mean([retained - level[model] for model in mamba]),
    }
    return Evidence(
        intervals,
        [Number(f"{model}, valley on WikiText", of_model[model]) for model in models],
        list(_architectures(frame)),
    )


def _architectures(frame: pd.DataFrame) -> Iterator[Chart]:
    """Return entropy, curvature and the invariance metrics of one or two models of each architecture by depth."""
    entropy = _on_wikitext(frame, "prompt_entropy", "maxEntropy")
    depth = {model: entropy.loc[model].last_valid_index() for model in ARCHITECTURES}
    for metric, (variant, unit) in BY_DEPTH.items():
        curves = _on_wikitext(frame, metric, variant)
        # layers without a value stay, so that each lies at its depth
        shown = {
            model: curves.loc[model].reindex(range(1, depth[model] + 1))
            for model in ARCHITECTURES
            if model in curves.index
        }
        title = f"{metric.replace('_', ' ').capitalize()} by depth, WikiText"
        yield drawing.chart(title, unit, shown, by_depth=True)


def _on_wikitext(frame: pd.DataFrame, metric: str, variant: str) -> pd.DataFrame:
    """Return a released metric as model × layer."""
    curves = released.curves(frame, metric, variant, dataset="wikitext")
    return curves.droplevel(["revision", "dataset"])


@recipe("L-fig4", scales=released.SCALES)
def changed_by_training(assets: Assets) -> Evidence:
    """Compare how much each third changes between neighbouring checkpoints, by metric (figures 4 and 11)."""
    frame = released.metrics(assets)
    tables = {metric: by_step(frame, metric) for metric in OVER_TRAINING}
    middle, early, numbers = [], [], []
    for metric, table in tables.items():
        moved = table.diff().abs().iloc[1:] / (
            table.to_numpy().max() - table.to_numpy().min()
        )
        total = moved.sum()
        first, inner, last = released.thirds(total)
        middle.append(float(inner.mean() - np.mean([first.mean(), last.mean()])))
        first_late, *rest = released.thirds(moved[moved.index > LATE].sum())
        early.append(float(np.mean([part.mean() for part in rest]) - first_late.mean()))
        for name, part in zip(
            ("first", "middle", "last"), (first, inner, last), strict=True
        ):
            numbers.append(
                Number(
                    f"{metric}, change over training, {name} third", float(part.mean())
                )
            )
    entropy = tables["prompt_entropy"]
    inner = released.thirds(entropy.columns.to_series())[1]
    steps = entropy.index.to_series()
    falls = [float(entropy[layer].corr(steps, method="spearman")) for layer in inner]
    return Evidence(
        {
            "middle": mean(middle),
            "falls": mean(falls),
            "lidar": mean(_lidar_dips(frame)),
            "early": mean(early),
        },
        numbers,
        [
            drawing.heat_map(
                "Prompt entropy by step and layer, WikiText",
                entropy,
                down="step",
                across="layer",
            )
        ],
    )


def _lidar_dips(frame: pd.DataFrame) -> list[float]:
    """Return for each data set how far LiDAR in the middle lies below the lower of the other thirds."""
    final = frame[(frame["model"] == MODEL) & frame["revision"].isin(("", "main"))]
    dips = []
    for _, curve in released.curves(final, "lidar", "maxEntropy").iterrows():
        first, inner, last = released.thirds(released.blocks(curve))
        dips.append(float(min(first.mean(), last.mean()) - inner.mean()))
    return dips


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
    """Fit the dip of entropy, curvature and LiDAR of the models of figure 12 against their size."""
    frame = released.metrics(assets)
    frame = frame[frame["revision"].isin(("", "main"))]
    measured = {
        "compression": (
            "depth of the dip",
            _by_model(frame, "prompt_entropy", released.valley),
        ),
        "smoothness": ("curvature", _by_model(frame, "curvature", _level, "raw")),
        "invariance": ("LiDAR", _by_model(frame, "lidar", _level)),
    }
    intervals, numbers, inapplicable = {}, [], {}
    for claim, (quantity, values) in measured.items():
        printed = [model for model in PRINTED_SIZES if model in values]
        sizes = [math.log10(released.PARAMETERS[model]) for model in printed]
        intervals[claim] = slope(sizes, [values[model] for model in printed])
        numbers += [
            Number(f"{quantity} of {model}", value) for model, value in values.items()
        ]
        if len(printed) < FEWEST:
            inapplicable[claim] = (
                f"{quantity} at every layer of at least {FEWEST} of these models, where {len(printed)} have it"
            )
    curves = _on_wikitext(frame, "prompt_entropy", "maxEntropy")
    shapes = {
        model: curves.loc[model].dropna()
        for model in released.PARAMETERS
        if model in curves.index
    }
    plot = drawing.chart(
        "Prompt entropy by size, WikiText",
        "share of the maximum",
        shapes,
        by_depth=True,
    )
    notes = ["Models above 1B are shown and enter no slope, as the figure ends there."]
    return Evidence(intervals, numbers, [plot], notes, inapplicable)


def _by_model(
    frame: pd.DataFrame,
    metric: str,
    summary: Callable[[pd.Series], float],
    variant: str = "maxEntropy",
) -> dict[str, float]:
    """Return a summary of a metric's curve for each size of Pythia that has a value at every layer."""
    curves = _on_wikitext(frame, metric, variant)
    values = {}
    for model in released.PARAMETERS:
        if model not in curves.index:
            continue
        curve = curves.loc[model]
        layers = curve.loc[1 : curve.last_valid_index()]
        if layers.notna().all():
            values[model] = summary(curve)
    return values


def _level(curve: pd.Series) -> float:
    """Return the mean of a metric over the layers."""
    return float(released.blocks(curve).mean())

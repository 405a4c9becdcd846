"""What the released scores of layers on MTEB show: middle layers, and metrics that find them without labels."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from layerscope.core import spans
from layerscope.scores import (
    Evaluation,
    corpus_averages,
    correlate,
    distance_correlation,
    kendall,
    one_variant,
    rules_table,
    spearman,
)
from layerscope_papers import drawing, released
from layerscope_papers.assets import Assets
from layerscope_papers.recipe import Evidence, Number, bootstrap, mean, recipe

MODEL = "Pythia-410m"
STRONG = ("curvature", "dime", "infonce")
OTHERS = ("prompt_entropy", "dataset_entropy", "lidar")


def _table(evaluation: Evaluation, model: str) -> pd.DataFrame:
    """Return the released scores of a model as layers × tasks.

    Left out are layers without scores on most tasks, then tasks that lack one of the layers left.
    """
    table = evaluation.table(model, "main")
    covered = table.notna().mean(axis=1)
    return table[covered >= released.MOST_TASKS].dropna(axis=1)


def gains(table: pd.DataFrame) -> list[float]:
    """Return for each task the gain over the last layer of the layer that the other tasks choose.

    In percentage points; `table` is layers × tasks. Layer 0 and the last layer are not candidates.
    """
    found = []
    for task in table:
        chosen = _middle(table).drop(columns=task).mean(axis=1).idxmax()
        found.append(100 * float(table.loc[chosen, task] - table[task].iloc[-1]))
    return found


def _middle(table: pd.DataFrame) -> pd.DataFrame:
    """Return the layers between layer 0 and the last, which are the candidates."""
    return table[(table.index > 0) & (table.index < table.index[-1])]


@recipe("L-fig1", scales=released.SCALES)
def middle_layers(assets: Assets) -> Evidence:
    """Choose each task's layer by the other tasks, and score it on that task against the last layer."""
    evaluation = released.scores(assets)
    tables = {
        name: _table(evaluation, model) for name, model in released.SCORED.items()
    }
    averages = {name: 100 * table.mean(axis=1) for name, table in tables.items()}
    best = [_best_gain(average) for average in averages.values()]
    numbers = [
        Number("smallest gain of the best layer [points]", min(best)),
        Number("largest gain of the best layer [points]", max(best)),
    ]
    for name, table in tables.items():
        numbers += _summary(name, table)
    return Evidence(
        {name: mean(gains(table)) for name, table in tables.items()},
        numbers,
        [drawing.chart("MTEB by depth", "mean score [%]", averages, by_depth=True)],
        [_coverage(name, table) for name, table in tables.items()],
    )


def _best_gain(average: pd.Series) -> float:
    """Return how far the best layer after layer 0 lies above the last."""
    return float(average[average.index > 0].max() - average.iloc[-1])


def _coverage(name: str, table: pd.DataFrame) -> str:
    """Return a sentence on which layers and tasks of a model have scores."""
    missing = sorted(set(range(1, table.index[-1])) - set(table.index))
    tasks = f"{name}: {table.shape[1]} tasks have a score at every layer compared"
    if not missing:
        return f"{tasks}."
    return f"{tasks}; without scores on most tasks, no candidates: {spans(missing, 'layer')}."


def _summary(model: str, table: pd.DataFrame) -> Iterator[Number]:
    average = 100 * table.mean(axis=1)
    after_first = average[average.index > 0]
    surpassed = _middle(table).max() > table.iloc[-1]
    if 0 in average.index:
        yield Number(f"{model}, layer 0", float(average[0]))
    yield Number(f"{model}, mean of layers", float(average.mean()))
    yield Number(f"{model}, best layer", float(after_first.max()))
    yield Number(f"{model}, number of the best layer", float(after_first.idxmax()))
    yield Number(f"{model}, last layer", float(average.iloc[-1]))
    yield Number(f"{model}, best layer of each task", 100 * float(table.max().mean()))
    yield Number(
        f"{model}, tasks with a better middle layer [%]", 100 * float(surpassed.mean())
    )


@recipe("L-fig3", scales=released.SCALES)
def metrics_that_follow(assets: Assets) -> Evidence:
    """Correlate each metric, averaged over data sets, with the mean score over resampled tasks (figures 3 and 8)."""
    frame = released.metrics(assets)
    frame = frame[
        (frame["model"] == MODEL) & frame["dataset"].str.startswith(released.TASKS_OF)
    ]
    table = _table(released.scores(assets), MODEL).iloc[1:]
    averages = {name: _average(frame, name) for name in (*STRONG, *OTHERS)}
    layers = sorted(
        set(table.index).intersection(*(curve.index for curve in averages.values()))
    )
    curves = {name: curve[layers].to_numpy() for name, curve in averages.items()}

    def by_metric(tasks: npt.NDArray[np.float64]) -> dict[str, float]:
        return {
            name: _with_mean(distance_correlation, curve, tasks)
            for name, curve in curves.items()
        }

    def lead(tasks: npt.NDArray[np.float64]) -> float:
        strength = by_metric(tasks)
        strong = np.mean([strength[name] for name in STRONG])
        return float(strong - np.mean([strength[name] for name in OTHERS]))

    def strongest(tasks: npt.NDArray[np.float64]) -> float:
        strength = by_metric(tasks)
        return strength.pop("dime") - max(strength.values())

    tasks = table.loc[layers].to_numpy().T
    statistics = {
        "Distance correlation": distance_correlation,
        "Spearman": spearman,
        "Kendall": kendall,
    }
    plots, numbers = [], []
    for label, statistic in statistics.items():
        found = {
            name: bootstrap(tasks, partial(_with_mean, statistic, curve))
            for name, curve in curves.items()
        }
        plots.append(drawing.bars(f"{label} with the mean MTEB score", label, found))
        for name, interval in found.items():
            title = f"{label} of {name} with the mean score"
            numbers.append(Number.of(title, interval))
    intervals = {
        "lead": bootstrap(tasks, lead),
        "strongest": bootstrap(tasks, strongest),
    }
    return Evidence(intervals, numbers, plots, released.flagged(frame))


def _with_mean(
    statistic: Callable[..., Any],
    curve: npt.NDArray[np.float64],
    tasks: npt.NDArray[np.float64],
) -> float:
    """Return how a metric by layer goes with the mean score of tasks `[tasks, layers]`."""
    return float(statistic(curve, tasks.mean(axis=0)))


def _average(frame: pd.DataFrame, metric: str) -> pd.Series:
    """Return a metric by layer, the mean over the data sets that have it at every layer."""
    variant = (
        "raw"
        if "raw" in set(frame.loc[frame["metric"] == metric, "variant"])
        else "maxEntropy"
    )
    return released.curves(frame, metric, variant).dropna(axis=1).mean()


@recipe("L-appE", scales=released.SCALES)
def chosen_without_labels(assets: Assets) -> Evidence:
    """Fit on the other models whether to minimise or maximise DiME, and score the layer it chooses on each task."""
    frame = released.metrics(assets)
    frame = frame[
        frame["revision"].isin(("", "main"))
        & frame["dataset"].str.startswith(released.TASKS_OF)
    ]
    evaluation = released.scores(assets)
    curves = corpus_averages(one_variant(frame))
    correlations = correlate(curves, evaluation, statistics=["spearman"], bootstrap=0)
    others = correlations[correlations["model"] != MODEL]
    fitted = others.groupby("metric", sort=False)["estimate"].mean()
    chosen = (
        rules_table(evaluation, curves)
        .query("model == @MODEL")
        .set_index(["metric", "extremum"])["layer"]
    )
    table = 100 * _table(evaluation, MODEL)
    found = {}
    for metric, correlation in fitted.items():
        layers = chosen[metric, "minimum" if correlation < 0 else "maximum"]
        found[metric] = mean((table.loc[layers] - table.iloc[-1]).tolist())
    numbers = []
    for name, gain in found.items():
        numbers.append(Number.of(f"gain by {name} [points]", gain))
        numbers.append(
            Number(
                f"gain by {name} [%]", 100 * gain.value / float(table.iloc[-1].mean())
            )
        )
    plot = drawing.bars("Gain over the last layer", "points", found)
    return Evidence({"dime": found["dime"]}, numbers, [plot], released.flagged(frame))

"""What the released scores of layers on MTEB show: middle layers, and metrics that find them without labels.

A middle layer is chosen by some tasks and judged on another. The best layer of a table always beats
the last one a little, by chance alone; a layer that is chosen without looking at the task at hand
does so only where middle layers are better:

    task      layer 1   layer 2   layer 3 (the last)
    A            0.50      0.60      0.55
    B            0.40      0.50      0.45      A and C choose layer 2, which gains 5 points on B
    C            0.30      0.55      0.50
"""

from collections.abc import Callable
from functools import partial

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
from layerscope_papers.intervals import bootstrap, mean
from layerscope_papers.recipe import Evidence, Number, recipe

Array = npt.NDArray[np.float64]
MODEL = "Pythia-410m"
STRONG = ("curvature", "dime", "infonce")
METRICS = (*STRONG, "prompt_entropy", "dataset_entropy", "lidar")
STATISTICS = {
    "Distance correlation": distance_correlation,
    "Spearman": spearman,
    "Kendall": kendall,
}


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
    gains = []
    for task in table:
        others = _middle(table).drop(columns=task)
        chosen = others.mean(axis=1).idxmax()
        gain = table.loc[chosen, task] - table[task].iloc[-1]
        gains.append(100 * float(gain))
    return gains


def _middle(table: pd.DataFrame) -> pd.DataFrame:
    """Return the layers between layer 0 and the last, which are the candidates."""
    layers = table.index
    return table[(layers > 0) & (layers < layers[-1])]


@recipe("L-fig1", scales=released.SCALES)
def middle_layers(assets: Assets) -> Evidence:
    """Choose each task's layer by the other tasks, and score it on that task against the last layer.

    The claim is judged model by model, over tasks. Beside it stand the scores of the first, the best
    and the last layer, what each task's own best layer would score, and the gain of the best layer
    of the averages, which is what the paper prints.
    """
    evaluation = released.scores(assets)
    averages = {}
    intervals = {}
    numbers = []
    notes = []
    best = []
    for name, model in released.SCORED.items():
        table = _table(evaluation, model)
        averages[name] = 100 * table.mean(axis=1)
        intervals[name] = mean(gains(table))
        notes.append(_coverage(name, table))
        summary = _summary(table)
        best.append(summary["best layer"] - summary["last layer"])
        for quantity, value in summary.items():
            numbers.append(Number(f"{name}, {quantity}", value))
    numbers += [
        Number("smallest gain of the best layer [points]", min(best)),
        Number("largest gain of the best layer [points]", max(best)),
    ]
    plot = drawing.chart("MTEB by depth", "mean score [%]", averages, by_depth=True)
    return Evidence(intervals, numbers, [plot], notes)


def _coverage(name: str, table: pd.DataFrame) -> str:
    """Return a sentence on which layers and tasks of a model have scores."""
    every = range(1, table.index[-1])
    missing = sorted({*every} - {*table.index})
    tasks = f"{name}: {table.shape[1]} tasks have a score at every layer compared"
    if not missing:
        return f"{tasks}."
    layers = spans(missing, "layer")
    return f"{tasks}; without scores on most tasks, no candidates: {layers}."


def _summary(table: pd.DataFrame) -> dict[str, float]:
    """Return scores of layers and the share of tasks with a better middle layer, in percent, by what they are.

    The best layer is one after layer 0, whose score stands beside it where there is one.
    """
    average = 100 * table.mean(axis=1)
    after_first = average.drop(0, errors="ignore")
    surpassed = _middle(table).max() > table.iloc[-1]
    summary = {
        "layer 0": average.get(0),
        "mean of layers": average.mean(),
        "best layer": after_first.max(),
        "number of the best layer": after_first.idxmax(),
        "last layer": average.iloc[-1],
        "best layer of each task": 100 * table.max().mean(),
        "tasks with a better middle layer [%]": 100 * surpassed.mean(),
    }
    present: dict[str, float] = pd.Series(summary, dtype=float).dropna().to_dict()
    return present


@recipe("L-fig3", scales=released.SCALES)
def metrics_that_follow(assets: Assets) -> Evidence:
    """Correlate each metric, averaged over data sets, with the mean score over resampled tasks (figures 3 and 8).

    - lead: distance correlation of the three metrics that the text names, less that of the others;
    - strongest: that of DiME, less the highest of the others.

    Both are drawn again over tasks. Spearman's and Kendall's correlations stand beside them, as the
    text says that they agree.
    """
    frame = released.metrics(assets)
    frame = frame[frame["model"] == MODEL]
    frame = frame[frame["dataset"].str.startswith(released.TASKS_OF)]
    scores = _table(released.scores(assets), MODEL).iloc[1:]
    curves = pd.DataFrame({name: _average(frame, name) for name in METRICS})
    layers = curves.dropna().index.intersection(scores.index)
    values = curves.loc[layers].to_numpy().T
    tasks = scores.loc[layers].to_numpy().T
    plots = []
    numbers = []
    for label, statistic in STATISTICS.items():
        intervals = {}
        for name, curve in zip(METRICS, values, strict=True):
            intervals[name] = bootstrap(tasks, partial(_with_mean, statistic, curve))
            title = f"{label} of {name} with the mean score"
            numbers.append(Number.of(title, intervals[name]))
        plots.append(
            drawing.bars(f"{label} with the mean MTEB score", label, intervals)
        )
    intervals = {
        "lead": bootstrap(tasks, partial(_lead, values)),
        "strongest": bootstrap(tasks, partial(_strongest, values)),
    }
    return Evidence(intervals, numbers, plots, released.flagged(frame))


def _lead(values: Array, tasks: Array) -> float:
    """Return how much more closely the strong metrics follow the mean score than the others, on average.

    `values` are metrics × layers, the strong ones first, and `tasks` tasks × layers.
    """
    strength = _with_mean(distance_correlation, values, tasks)
    strong = strength[: len(STRONG)].mean()
    others = strength[len(STRONG) :].mean()
    return float(strong - others)


def _strongest(values: Array, tasks: Array) -> float:
    """Return how much more closely DiME follows the mean score than the closest of the others.

    Its arguments are those of `_lead`.
    """
    strength = _with_mean(distance_correlation, values, tasks)
    others = np.delete(strength, METRICS.index("dime"))
    return float(strength[METRICS.index("dime")] - others.max())


def _with_mean(statistic: Callable[..., Array], values: Array, tasks: Array) -> Array:
    """Return how metrics by layer, `[layers]` or a row each, go with the mean score of tasks `[tasks, layers]`."""
    return statistic(values, tasks.mean(axis=0))


def _average(frame: pd.DataFrame, metric: str) -> pd.Series:
    """Return a metric by layer, the mean over the data sets that have it at every layer.

    Values are as they are where those were released, else shares of their maximum.
    """
    has_raw = (frame["metric"] == metric) & (frame["variant"] == "raw")
    variant = "raw" if has_raw.any() else "maxEntropy"
    curves = released.curves(frame, metric, variant)
    return curves.dropna(axis=1).mean()


@recipe("L-appE", scales=released.SCALES)
def chosen_without_labels(assets: Assets) -> Evidence:
    """Fit on the other models whether to minimise or maximise DiME, and score the layer it chooses on each task.

    What a metric would gain if its direction were chosen by the same scores proves nothing, as one
    of two directions always looks better. The other metrics stand beside DiME, chosen likewise.
    """
    frame = released.at_end(released.metrics(assets))
    frame = frame[frame["dataset"].str.startswith(released.TASKS_OF)]
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
    intervals = {}
    for metric, correlation in fitted.items():
        extremum = "minimum" if correlation < 0 else "maximum"
        layers = chosen[metric, extremum]
        gain = table.loc[layers] - table.iloc[-1]
        intervals[metric] = mean(gain.tolist())
    numbers = []
    of_last = float(table.iloc[-1].mean())
    for name, gain in intervals.items():
        share = 100 * gain.value / of_last
        numbers.append(Number.of(f"gain by {name} [points]", gain))
        numbers.append(Number(f"gain by {name} [%]", share))
    plot = drawing.bars("Gain over the last layer", "points", intervals)
    return Evidence(
        {"dime": intervals["dime"]}, numbers, [plot], released.flagged(frame)
    )

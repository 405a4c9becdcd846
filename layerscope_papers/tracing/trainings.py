"""What ways to train do to the layers of a vision transformer: accuracy, saturation and spread, by histories alone."""

from itertools import chain
from operator import sub, truediv

import numpy as np
import pandas as pd

from layerscope import metrics
from layerscope.core import count
from layerscope.runs import Run
from layerscope_papers import drawing
from layerscope_papers.assets import Asset
from layerscope_papers.bench import ACCURACY, Bench, at_end, needs, settled, trained
from layerscope_papers.intervals import (
    Interval,
    at_last,
    before_last,
    early,
    mean,
    paired,
    unpaired,
)
from layerscope_papers.recipe import Evidence, Number
from layerscope_papers.vision import (
    ALIGNED,
    ALWAYS,
    BOTH,
    CKA,
    CLASSIFIERS,
    COSINE,
    DISTILLED,
    OTHER,
    STANDARD,
    UNIFORM,
    Kind,
    Predicted,
    Trained,
    Vision,
)

SHARES = {"half": 2, "three quarters": 3}
"""Depths of the separate models of T-fig5, in quarters of the full one: half of the layers, and three quarters."""
EPSILON = 0.01
"""Definition 3.1: the effective depth is the first layer that classifies all but 1 % of the training images."""
FITTED = 99.9
"""Training accuracy in percent above which a separate model leaves nothing to be better at."""
NOTHING_TO_GAIN = "training images that the separate models do not fit: here they err on less than one in a thousand"
NEAR = 0.95
"""The share of the standard model's last accuracy at which a training counts as converged."""


def _data_sets(setup: Vision) -> dict[str, list[Trained]]:
    """Return the models of all seeds by the data set that they are trained on, first the one that may be missing."""
    return {each.data: STANDARD.seeds(each) for each in (OTHER[setup.data], setup)}


@trained(
    "T-fig3",
    needs=lambda setup: list(chain(*_data_sets(setup).values())),
    local=lambda setup: ["cifar10"] if setup.data == "digits" else [],
)
def saturation_by_similarity(bench: Bench) -> Evidence:
    """Look whether the data set with the higher similarity has the more saturated samples.

    Which of the two data sets that is, is not claimed; where their similarities do not differ, the
    claim does not apply.
    """
    means = {}
    curves = {}
    for data, models in _data_sets(bench.setup).items():
        histories = list(map(bench.history, models))
        cosines = [at_end(history, "cosine_similarity") for history in histories]
        saturated = [100 * at_end(history, "saturated") for history in histories]
        means[data] = {
            "cosine": list(map(early, cosines)),
            "saturated": list(map(early, saturated)),
        }
        curves[data] = pd.concat(saturated, axis=1).mean(axis=1)
    closer, other = sorted(
        means.values(), key=lambda of_data: -np.mean(of_data["cosine"])
    )
    more = {name: unpaired(closer[name], other[name]) for name in closer}
    differ = more["cosine"].low > 0
    return Evidence(
        {"agree": more["saturated"]},
        [
            Number.of(f"{data}: {name}", mean(values))
            for data, of_data in means.items()
            for name, values in of_data.items()
        ],
        [drawing.chart("Saturated samples by layer", "%", curves)],
        inapplicable={} if differ else {"agree": "data sets that differ in similarity"},
    )


@trained(
    "T-fig4",
    kinds={
        "standard": STANDARD,
        "a classifier per layer": CLASSIFIERS,
        "aligned": ALIGNED,
    },
)
def shared_classifier(bench: Bench) -> Evidence:
    """Compare the shared classifier with one per layer, and both with standard training.

    "On par" is a margin of a point: the whole interval of the difference must lie above it.
    """
    accuracy = bench.gains(ALIGNED, CLASSIFIERS, ACCURACY)
    cosine = bench.gains(ALIGNED, CLASSIFIERS, "cosine_similarity")
    curves = bench.by_kind("cosine_similarity")
    title = "Cosine similarity to the last layer"
    return Evidence(
        {
            "layers": before_last(accuracy),
            "last": at_last(accuracy),
            "cosine": before_last(cosine),
        },
        plots=[
            bench.chart("Accuracy by layer", ACCURACY),
            drawing.mean_chart(title, "cosine, centred", curves),
        ],
    )


def _separate(setup: Vision) -> list[Kind]:
    return [
        Kind("standard", depth=setup.depth * quarters // 4)
        for quarters in SHARES.values()
    ]


def _with_separate(setup: Vision) -> list[Asset]:
    kinds = [STANDARD, ALIGNED, *_separate(setup)]
    learnt = [Predicted(model, True) for kind in kinds for model in kind.seeds(setup)]
    return [*needs(*kinds)(setup), *learnt]


@trained("T-fig5", needs=_with_separate)
def effective_depth(bench: Bench) -> Evidence:
    """Compare accuracies on the training images by layer, models of other depths, and how soon models converge.

    - depth: the first layer that classifies nearly all training images (definition 3.1);
    - monotone: the largest fall of accuracy from a layer to the next;
    - half, three quarters: an aligned model cut there, against a standard one of that depth;
    - convergence: when the last layer comes near the accuracy at which the standard model ends.
    """
    learnt = {name: bench.training_accuracy(kind) for name, kind in BOTH.items()}
    depths = {
        name: [
            float(metrics.effective_depth(curve.to_numpy(), EPSILON))
            for curve in curves
        ]
        for name, curves in learnt.items()
    }
    aligned = bench.curves(ALIGNED, ACCURACY)
    intervals = {
        "depth": paired(depths["standard"], depths["aligned"]),
        "monotone": mean([float(curve.diff().min()) for curve in aligned]),
        "convergence": _sooner(bench),
    }
    numbers = []
    inapplicable = {}
    for name, kind in zip(SHARES, _separate(bench.setup), strict=True):
        separate = [
            100 * float(curve.iloc[-1]) for curve in bench.training_accuracy(kind)
        ]
        cut = [100 * float(curve.loc[kind.depth]) for curve in learnt["aligned"]]
        intervals[name] = paired(cut, separate)
        if mean(separate).value > FITTED:
            inapplicable[name] = NOTHING_TO_GAIN
        title = f"training accuracy of a separate model of {count(kind.depth or 0, 'layer')} [%]"
        numbers.append(Number.of(title, mean(separate)))
    numbers += [
        Number.of(f"effective depth, {name}", mean(values))
        for name, values in depths.items()
    ]
    averages = {
        name: 100 * pd.concat(curves, axis=1).mean(axis=1)
        for name, curves in learnt.items()
    }
    return Evidence(
        intervals,
        numbers,
        [drawing.chart("Accuracy on training images by layer", "%", averages)],
        inapplicable=inapplicable,
    )


def _sooner(bench: Bench) -> Interval:
    """Compare which share of the training it takes to come near the accuracy that the standard model ends with."""
    standard = list(map(_by_step, bench.histories(STANDARD)))
    aligned = list(map(_by_step, bench.histories(ALIGNED)))
    near = [NEAR * curve.iloc[-1] for curve in standard]
    return paired(map(reached, standard, near), map(reached, aligned, near))


def reached(curve: pd.Series, near: float) -> float:
    """Return the share of a training, in percent, until its accuracy is near enough, all of it if it never is.

    Between two evaluations accuracy is taken to rise in a straight line.

    >>> reached(pd.Series([10.0, 50.0, 90.0], index=[0, 10, 20]), 70.0)
    75.0
    """
    first = int(np.argmax(curve >= near))
    if curve.iloc[first] < near:
        return 100.0
    around = curve.iloc[max(first - 1, 0) : first + 1]
    return 100 * float(np.interp(near, around, around.index)) / float(curve.index[-1])


def _by_step(history: Run) -> pd.Series:
    """Return the accuracy of the last layer by step of the training."""
    rows = history.table()
    rows = rows[(rows["metric"] == ACCURACY) & (rows["layer"] == rows["layer"].max())]
    return rows.set_index("step")["value"].sort_index()


@trained("T-fig6")
def saturation_layers(bench: Bench) -> Evidence:
    """Compare the mean layer from which a prediction no longer changes, for images."""
    return settled({name: bench.histories(kind) for name, kind in BOTH.items()})


@trained(
    "T-fig14",
    kinds={"standard": STANDARD, "cosine regulariser": COSINE, "aligned": ALIGNED},
)
def cosine_regulariser(bench: Bench) -> Evidence:
    """Compare what the regulariser and the aligned loss add to the accuracy of the layers before the last.

    "Helps little" is a share of what the aligned loss adds, as a gain in points says nothing of its
    own.
    """
    regularised = map(early, bench.gains(COSINE, STANDARD, ACCURACY))
    aligned = map(early, bench.gains(ALIGNED, STANDARD, ACCURACY))
    return Evidence(
        {
            "aligned": before_last(bench.gains(ALIGNED, COSINE, ACCURACY)),
            "cosine": before_last(bench.gains(ALIGNED, COSINE, "cosine_similarity")),
            "share": mean(list(map(truediv, regularised, aligned))),
        },
        plots=[bench.chart("Accuracy by layer", ACCURACY)],
    )


@trained(
    "T-fig15",
    kinds={"linear": ALIGNED, "uniform": UNIFORM, "linear, always aligned": ALWAYS},
)
def linear_weights(bench: Bench) -> Evidence:
    """Compare the accuracy of shallow layers and of the last under both weights, and show it without alternating."""
    uniform = bench.gains(UNIFORM, ALIGNED, ACCURACY)
    shallow = [float(curve.iloc[: len(curve) // 2].mean()) for curve in uniform]
    linear, always = (
        at_last(bench.gains(ALIGNED, rival, ACCURACY)) for rival in (UNIFORM, ALWAYS)
    )
    alternating = (
        "accuracy at the last layer, alternating minus always aligned [points]"
    )
    return Evidence(
        {"shallow": mean(shallow), "last": linear},
        [Number.of(alternating, always)],
        [bench.chart("Accuracy by layer", ACCURACY)],
    )


@trained("T-fig16")
def collapse(bench: Bench) -> Evidence:
    """Compare the logarithm of NC1, on average over the layers before the last."""
    curves = {}
    for name, of_seeds in bench.by_kind("nc1").items():
        curves[name] = list(map(np.log10, of_seeds))
    lower = map(sub, curves["aligned"], curves["standard"])
    return Evidence(
        {"nc1": before_last(lower)},
        plots=[drawing.mean_chart("NC1 by layer", "log10 of NC1", curves)],
    )


@trained(
    "T-ckareg",
    kinds={"CKA regulariser": CKA, "cosine regulariser": COSINE, "aligned": ALIGNED},
)
def cka_regulariser(bench: Bench) -> Evidence:
    """Compare the regularisers with each other, and CKA's with the aligned loss."""
    return _gains(bench, cosine=(CKA, COSINE), aligned=(CKA, ALIGNED))


def _gains(bench: Bench, **compared: tuple[Kind, Kind]) -> Evidence:
    """Return by claim what one training gains in accuracy over another before the last layer."""
    intervals = {}
    for claim, (one, other) in compared.items():
        intervals[claim] = before_last(bench.gains(one, other, ACCURACY))
    return Evidence(intervals, plots=[bench.chart("Accuracy by layer", ACCURACY)])


@trained(
    "T-kl",
    kinds={
        "aligned": ALIGNED,
        "classifiers": CLASSIFIERS,
        "aligned, distilled": DISTILLED,
    },
)
def distillation(bench: Bench) -> Evidence:
    """Compare the aligned loss with and without a divergence from the last layer's predictions."""
    return _gains(bench, distilled=(DISTILLED, ALIGNED))

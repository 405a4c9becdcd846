"""What ways to train do to the layers of a vision transformer: accuracy, saturation and spread, by histories alone."""

import numpy as np
import pandas as pd

from layerscope.core.errors import count
from layerscope.papers import drawing
from layerscope.papers.assets import Asset
from layerscope.papers.recipe import Claim, Evidence, Number, Printed, mean, paired
from layerscope.papers.vision import (
    ACCURACY,
    ALIGNED,
    ALWAYS,
    BOTH,
    CKA,
    CLASSIFIERS,
    COSINE,
    DISTILLED,
    STANDARD,
    UNIFORM,
    Bench,
    Kind,
    Vision,
    needs,
    trained,
)  # fmt: skip

SHARES = {"half": 2, "three quarters": 3}
"""Depths of the separate models of T-fig5, in quarters of the full one: 6 and 9 of 12 layers."""
DEFINED = "relative_to=all,epsilon=0.01,on=train"
"""Definition 3.1: the first layer that classifies all but 1 % of the training images."""


@trained(
    "T-fig3", "Where layers are closer to the last one, more samples saturate early",
    Claim(
        "spearman", "Trainings that bring the layers closer to the last one make more samples saturate early.",
        "Spearman correlation of centred cosine to the last layer with the share of saturated samples, over six "
        "trainings, each averaged over the layers before the last",
        0.5, "above", "seeds",
    ),
    kinds={
        "standard": STANDARD, "cosine regulariser": COSINE, "CKA regulariser": CKA, "aligned": ALIGNED,
        "always aligned": ALWAYS, "aligned, uniform weights": UNIFORM,
    },
)  # fmt: skip
def saturation_by_similarity(bench: Bench) -> Evidence:
    """Correlate both over trainings, each a mean over the layers before the last, seed by seed."""
    table = pd.DataFrame(
        [
            {"kind": name, "seed": seed, "cosine": cosine.iloc[:-1].mean(), "saturated": 100 * early.iloc[:-1].mean()}
            for name, kind in bench.kinds.items()
            for seed, (cosine, early) in enumerate(
                zip(bench.curves(kind, "cosine_similarity"), bench.curves(kind, "saturated"), strict=True)
            )
        ]
    )
    found = [rows[["cosine", "saturated"]].corr("spearman").iloc[0, 1] for _, rows in table.groupby("seed")]
    averages = table.groupby("kind", sort=False)[["cosine", "saturated"]].mean()
    numbers = [Number(f"{kind}: {name}", value) for kind, row in averages.iterrows() for name, value in row.items()]
    return Evidence({"spearman": mean(found)}, numbers, [bench.chart("Saturated samples by layer", "saturated")])


@trained(
    "T-fig4", "One shared classifier is on par with a classifier per layer",
    Claim(
        "layers",
        "With one shared classifier the earlier layers are within a point of those with classifiers of their own.",
        "accuracy, shared minus separate classifiers, percentage points, mean over layers before the last",
        -1.0, "above", "seeds",
    ),
    Claim(
        "last", "With one shared classifier the last layer is within a point of that with a classifier per layer.",
        "accuracy at the last layer, shared minus separate classifiers, percentage points",
        -1.0, "above", "seeds",
    ),
    Claim(
        "cosine",
        "One shared classifier makes the earlier layers more similar to the last than separate classifiers do.",
        "centred cosine to the last layer, shared minus separate classifiers, mean over layers before the last",
        0.0, "above", "seeds",
    ),
    kinds={"standard": STANDARD, "a classifier per layer": CLASSIFIERS, "aligned": ALIGNED},
)  # fmt: skip
def shared_classifier(bench: Bench) -> Evidence:
    """Compare the shared classifier with one per layer, and both with standard training."""
    cosines = {name: curve.iloc[:-1] for name, curve in bench.averages("cosine_similarity").items()}
    return Evidence(
        {
            "layers": bench.gain(ALIGNED, CLASSIFIERS, ACCURACY),
            "last": bench.gain(ALIGNED, CLASSIFIERS, ACCURACY, bench.setup.depth),
            "cosine": bench.gain(ALIGNED, CLASSIFIERS, "cosine_similarity"),
        },
        plots=[
            bench.chart("Accuracy by layer", ACCURACY),
            drawing.chart("Cosine similarity to the last layer", "cosine, centred", cosines),
        ],
    )


def _separate(setup: Vision) -> list[Kind]:
    return [Kind("standard", depth=setup.depth * quarters // 4) for quarters in SHARES.values()]


def _with_separate(setup: Vision) -> list[Asset]:
    return list(needs(STANDARD, ALIGNED, *_separate(setup))(setup))


@trained(
    "T-fig5", "Aligned training reduces the effective depth",
    Claim(
        "depth", "After aligned training, a shallower layer suffices to classify the training images.",
        "effective depth, the first layer with at least 99 % of training images right; "
        "standard minus aligned, layers", 0.0, "above", "seeds",
    ),
    Claim(
        "monotone", "After aligned training, accuracy falls by less than a point from any layer to the next.",
        "lowest change of accuracy from one layer to the next, percentage points", -1.0, "above", "seeds",
    ),
    *(
        Claim(
            name, f"Cut to {name} of its layers, an aligned model is at most a point below one trained at that depth.",
            "accuracy, cut minus separately trained, percentage points", -1.0, "above", "seeds",
        )
        for name in SHARES
    ),
    needs=_with_separate,
    printed=(
        Printed("effective depth, standard", 12, "section 3.1", "CIFAR-10"),
        Printed("effective depth, aligned", 7, "section 3.1", "CIFAR-10"),
    ),
)  # fmt: skip
def effective_depth(bench: Bench) -> Evidence:
    """Compare effective depths, look for drops of accuracy from layer to layer, and train models of other depths."""
    depths, aligned = bench.ends("effective_depth", variant=DEFINED), bench.curves(ALIGNED, ACCURACY)
    found = {
        "depth": paired(depths["standard"], depths["aligned"]),
        "monotone": mean([float(100 * curve.diff().min()) for curve in aligned]),
    }
    numbers = []
    for name, kind in zip(SHARES, _separate(bench.setup), strict=True):
        own = [float(curve.iloc[-1]) for curve in bench.curves(kind, ACCURACY)]
        cut = [float(curve.loc[kind.depth]) for curve in aligned]
        found[name] = mean([100 * (a - b) for a, b in zip(cut, own, strict=True)])
        title = f"accuracy of a separate model of {count(kind.depth or 0, 'layer')} [%]"
        numbers.append(Number(title, 100 * mean(own).value))
    numbers += [Number.of(f"effective depth, {name}", mean(values)) for name, values in depths.items()]
    return Evidence(found, numbers, [bench.chart("Accuracy by layer", ACCURACY)])


@trained(
    "T-fig6", "Aligned training moves saturation to earlier layers",
    Claim(
        "vision", "In a vision transformer, predictions settle at shallower layers after aligned training.",
        "saturation layer, mean over samples, standard minus aligned, layers", 0.0, "above", "seeds",
    ),
)  # fmt: skip
def saturation_layers(bench: Bench) -> Evidence:
    """Compare the mean layer from which a prediction no longer changes."""
    layers = bench.ends("saturation_layer")
    return Evidence(
        {"vision": paired(*layers.values())},
        [Number(f"mean saturation layer, {name}", mean(found).value) for name, found in layers.items()],
        [bench.chart("Saturated samples by layer", "saturated")],
    )


@trained(
    "T-fig14", "A cosine regulariser helps little, the aligned loss a lot",
    Claim(
        "aligned", "The aligned loss makes the layers before the last more accurate than the cosine regulariser.",
        "accuracy, aligned minus cosine regulariser, percentage points, mean over layers before the last",
        0.0, "above", "seeds",
    ),
    Claim(
        "share", "The cosine regulariser gains less than half as much accuracy as the aligned loss.",
        "gain over standard training in mean accuracy before the last layer, regulariser's as a "
        "share of the aligned loss's", 0.5, "below", "seeds",
    ),
    kinds={"standard": STANDARD, "cosine regulariser": COSINE, "aligned": ALIGNED},
)  # fmt: skip
def cosine_regulariser(bench: Bench) -> Evidence:
    """Compare what the regulariser and the aligned loss add to the accuracy of the layers before the last."""
    means = [
        [100 * float(curve.iloc[:-1].mean()) for curve in bench.curves(kind, ACCURACY)] for kind in bench.kinds.values()
    ]
    shares = [(cosine - standard) / (aligned - standard) for standard, cosine, aligned in zip(*means, strict=True)]
    return Evidence(
        {"aligned": bench.gain(ALIGNED, COSINE, ACCURACY), "share": mean(shares)},
        plots=[bench.chart("Accuracy by layer", ACCURACY)],
    )


def _at_the_last_layer(bench: Bench, rival: Kind) -> Evidence:
    """Return what aligned training gains over another at the last layer."""
    gain = bench.gain(ALIGNED, rival, ACCURACY, bench.setup.depth)
    return Evidence({"last": gain}, plots=[bench.chart("Accuracy by layer", ACCURACY)])


@trained(
    "T-fig15", "Linear weights keep the last layer better than uniform ones",
    Claim(
        "last", "Weights that grow linearly with depth leave the last layer more accurate than equal ones.",
        "accuracy at the last layer, linear minus uniform, percentage points", 0.0, "above", "seeds",
    ),
    kinds={"linear": ALIGNED, "uniform": UNIFORM},
)  # fmt: skip
def linear_weights(bench: Bench) -> Evidence:
    """Compare the last layer's accuracy under both weights."""
    return _at_the_last_layer(bench, UNIFORM)


@trained(
    "T-fig16", "Aligned training lowers NC1 across layers",
    Claim(
        "nc1", "After aligned training, samples of a class lie closer together (lower NC1) at the earlier layers.",
        "log10 of NC1, aligned minus standard, mean over layers before the last", 0.0, "below", "seeds",
    ),
)  # fmt: skip
def collapse(bench: Bench) -> Evidence:
    """Compare the logarithm of NC1, on average over the layers before the last."""
    standard, aligned = (
        [float(np.log10(curve.iloc[:-1]).mean()) for curve in bench.curves(kind, "nc1")] for kind in BOTH.values()
    )
    curves = {name: np.log10(curve) for name, curve in bench.averages("nc1").items()}
    return Evidence({"nc1": paired(aligned, standard)}, plots=[drawing.chart("NC1 by layer", "log10 of NC1", curves)])


@trained(
    "T-alt", "Alternating keeps the last layer better than the aligned loss alone",
    Claim(
        "last", "The last layer is more accurate when aligned steps alternate with steps on the last layer alone.",
        "accuracy at the last layer, alternating minus always aligned, percentage points", 0.0, "above", "seeds",
    ),
    kinds={"alternating": ALIGNED, "always aligned": ALWAYS},
)  # fmt: skip
def alternating(bench: Bench) -> Evidence:
    """Compare the last layer's accuracy under both schedules."""
    return _at_the_last_layer(bench, ALWAYS)


@trained(
    "T-ckareg", "A CKA regulariser would do no better than the cosine one",
    Claim(
        "cosine", "A CKA regulariser gains at most a point of accuracy over the cosine regulariser.",
        "accuracy, CKA minus cosine regulariser, percentage points, mean over layers before the last",
        1.0, "below", "seeds",
    ),
    Claim(
        "aligned", "A CKA regulariser gives less accurate layers than the aligned loss.",
        "accuracy, CKA regulariser minus aligned, percentage points, mean over layers before the last",
        0.0, "below", "seeds",
    ),
    kinds={"CKA regulariser": CKA, "cosine regulariser": COSINE, "aligned": ALIGNED},
    note="The paper infers this without running it",
)  # fmt: skip
def cka_regulariser(bench: Bench) -> Evidence:
    """Compare the regularisers with each other, and CKA's with the aligned loss."""
    gains = {"cosine": bench.gain(CKA, COSINE, ACCURACY), "aligned": bench.gain(CKA, ALIGNED, ACCURACY)}
    return Evidence(gains, plots=[bench.chart("Accuracy by layer", ACCURACY)])


@trained(
    "T-kl", "The aligned loss needs no distillation term",
    Claim(
        "distilled", "One shared classifier without distillation is within a point of separate ones with it.",
        "accuracy, aligned minus distilled classifiers, percentage points, mean over layers before the last",
        -1.0, "above", "seeds",
    ),
    kinds={"aligned": ALIGNED, "classifiers": CLASSIFIERS, "classifiers, distilled": DISTILLED},
)  # fmt: skip
def distillation(bench: Bench) -> Evidence:
    """Compare one shared classifier with a classifier per layer that learns from the last one's predictions."""
    gain = bench.gain(ALIGNED, DISTILLED, ACCURACY)
    return Evidence({"distilled": gain}, plots=[bench.chart("Accuracy by layer", ACCURACY)])

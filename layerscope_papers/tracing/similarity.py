"""How similar the layers of a vision transformer are, to the last one and to their neighbours, by their states.

Similarity is the cosine of a sample's states at two layers, each less its mean over samples
(footnote 2 of the paper). What is claimed of a model is judged seed by seed; what is claimed of
samples is a share of the samples of each seed, with its interval over seeds.
"""

from operator import sub

import numpy as np
import numpy.typing as npt
import pandas as pd

from layerscope import metrics
from layerscope_papers import drawing
from layerscope_papers.assets import Asset
from layerscope_papers.bench import (
    ACCURACY,
    METRICS,
    Bench,
    needs,
    numbered,
    to_last,
    trained,
)
from layerscope_papers.intervals import before_last, exact, mean
from layerscope_papers.measures import (
    line_distance,
    monotone_share,
    norm_ratio,
    steady_norm,
)
from layerscope_papers.recipe import Evidence, Number
from layerscope_papers.released import thirds
from layerscope_papers.vision import (
    ALIGNED,
    BOTH,
    SMALL,
    STANDARD,
    TUNED,
    Predicted,
    Vision,
)

ONE = {"standard": STANDARD}
SHOWN = {
    "cosine": (0.5, "Cosine of a block's input and output", "cosine, centred"),
    "ratio": (1.0, "Skip connection against branch", "ratio of norms"),
}
"""Of each claim of figure 11: above which value a sample counts, and title and unit of the picture."""


@trained("T-fig1", metrics=METRICS, scales={"small": SMALL, "paper": TUNED})
def closer_to_the_last(bench: Bench) -> Evidence:
    """Compare aligned and standard training seed by seed, on average over the layers before the last.

    Panels a to c of the figure are the three claims: similarity to the last layer, accuracy of the
    model's head at each layer, and the share of samples that have settled by then.
    """
    cosines = {
        name: [to_last(run) for run in bench.runs(kind)] for name, kind in BOTH.items()
    }
    intervals = {
        "cosine": before_last(map(sub, cosines["aligned"], cosines["standard"])),
        "accuracy": before_last(bench.gains(ALIGNED, STANDARD, ACCURACY)),
        "saturation": before_last(bench.gains(ALIGNED, STANDARD, "saturated")),
    }
    return Evidence(
        intervals,
        plots=[
            drawing.mean_chart(
                "Cosine similarity to the last layer", "cosine, centred", cosines
            ),
            bench.chart("Accuracy by layer", ACCURACY),
            bench.chart("Saturated samples by layer", "saturated"),
        ],
    )


@trained("T-fig2", metrics=METRICS)
def cosine_against_cka(bench: Bench) -> Evidence:
    """Correlate cosine with CKA and with accuracy over the layers of each standard model.

    - cka, accuracy: the rank correlation over the layers before the last, as curves of different
      shapes may rise together;
    - positive: the share of pairs of layers whose mean cosine is not negative;
    - plateau: how much more alike neighbouring layers are in the last third than in the first.
    """
    runs = bench.runs(STANDARD)
    cosine = [to_last(run) for run in runs]
    cka = [to_last(run, "cka") for run in runs]
    accuracy = bench.curves(STANDARD, ACCURACY)
    pairs = [run.metric("cosine_similarity") for run in runs]
    intervals = {
        "cka": mean(list(map(_rho, map(_earlier, cosine, cka)))),
        "accuracy": mean(list(map(_rho, map(_earlier, cosine, accuracy)))),
        "positive": mean([100 * _not_negative(table) for table in pairs]),
        "plateau": mean(list(map(_flattening, pairs))),
    }
    table = sum(pairs[1:], start=pairs[0]) / len(pairs)
    shares = [curve / 100 for curve in accuracy]
    curves = {"cosine, centred": cosine, "CKA, biased": cka, "accuracy": shares}
    return Evidence(
        intervals,
        plots=[
            drawing.mean_chart(
                "Similarity to the last layer, and accuracy",
                "cosine, CKA, accuracy",
                curves,
            ),
            drawing.heat_map(
                "Cosine similarity of every two layers", table, "layer", "layer"
            ),
        ],
    )


def _blocks(table: pd.DataFrame) -> npt.NDArray[np.float64]:
    """Return the similarities of layers 1 … L, without the state after the final norm."""
    layers = numbered(table.iloc[:, -1]).index
    square: npt.NDArray[np.float64] = table.loc[layers, layers].to_numpy()
    return square


def _not_negative(table: pd.DataFrame) -> float:
    """Return the share of pairs of layers 1 … L whose similarity is not negative."""
    layers = _blocks(table)
    return float((layers[np.triu_indices(len(layers), k=1)] >= 0).mean())


def _flattening(table: pd.DataFrame) -> float:
    """Return how much more alike neighbouring layers are in the last third than in the first."""
    neighbours = pd.Series(np.diag(_blocks(table), k=1))
    of_third = thirds(neighbours)
    return float(of_third["last"] - of_third["first"])


def _earlier(*curves: pd.Series) -> pd.DataFrame:
    """Return curves beside each other over the layers before the last that all have."""
    return pd.concat(curves, axis=1, join="inner").iloc[:-1]


def _rho(columns: pd.DataFrame) -> float:
    return float(columns.corr("spearman").iloc[0, 1])


@trained("T-fig10", kinds=ONE, metrics=METRICS)
def cosine_by_sample(bench: Bench) -> Evidence:
    """Count negative cosines over samples and layers, and correlate medians with depth.

    The picture has the quantiles of one seed's samples, where the paper draws boxes.
    """
    cosines = [
        metrics.cosine_to(states)[:, 1:-1].numpy() for states in bench.states(STANDARD)
    ]
    medians = [pd.Series(np.median(of_seed, axis=0)) for of_seed in cosines]
    least = min(float(of_seed.min()) for of_seed in cosines)
    return Evidence(
        {
            "negative": mean(
                [100 * float((of_seed < 0).mean()) for of_seed in cosines]
            ),
            "rises": mean(
                [each.corr(each.index.to_series(), "spearman") for each in medians]
            ),
        },
        [Number("lowest cosine of a sample at any layer", least)],
        [
            drawing.quantiles(
                "Cosine of each image to the last layer",
                "cosine, centred",
                cosines[0],
                first=1,
            )
        ],
    )


@trained("T-fig11", kinds=ONE, metrics=METRICS)
def neighbours(bench: Bench) -> Evidence:
    """Count samples and blocks whose input and output are alike, and whose skip connection outweighs the branch."""
    states = [of_seed[:, 1:] for of_seed in bench.states(STANDARD)]
    measured = {"cosine": map(_of_neighbours, states), "ratio": map(norm_ratio, states)}
    intervals = {}
    plots = []
    for name, values in measured.items():
        of_seed = list(values)
        above, title, unit = SHOWN[name]
        intervals[name] = mean([100 * float((each > above).mean()) for each in of_seed])
        plots.append(drawing.quantiles(title, unit, of_seed[0], first=2))
    return Evidence(intervals, plots=plots)


def _of_neighbours(states: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """Return the centred cosine of each state with the one a layer later, `[samples, layers - 1]`."""
    centred = states - states.mean(axis=0)
    lengths = np.linalg.norm(centred, axis=-1)
    products = (centred[:, :-1] * centred[:, 1:]).sum(axis=-1)
    cosines: npt.NDArray[np.float64] = products / (lengths[:, :-1] * lengths[:, 1:])
    return cosines


@trained("T-thm1", metrics=METRICS)
def similarity_rises(bench: Bench) -> Evidence:
    """Count monotone triples of layers, measure the distance from the straight line, and check the derivative.

    The derivative is the theorem's own step: along a straight line, the cosine to its end never
    falls. How far trained states are from a straight line (assumption 1) stands beside the share of
    triples in order, and so does that share without centring.
    """
    intervals = {"derivative": exact(derivative_error())}
    numbers = []
    curves = {}
    for name, kind in BOTH.items():
        states = [each[:, 1:] for each in bench.states(kind)]
        centred = [each - each.mean(axis=0) for each in states]
        uncentred = mean([100 * float(monotone_share(each).mean()) for each in states])
        away = [line_distance(each).mean(axis=0) for each in bench.states(kind)]
        intervals[f"order {name}"] = mean(
            [100 * float(monotone_share(each).mean()) for each in centred]
        )
        numbers += [
            Number.of(f"triples in order by uncentred cosine, {name} [%]", uncentred),
            Number.of(
                f"distance from the straight line (assumption 1), {name}",
                mean([float(each.mean()) for each in away]),
            ),
        ]
        curves[name] = drawing.by_layer(np.mean(away, axis=0), first=1)
    return Evidence(
        intervals,
        numbers,
        plots=[
            drawing.chart(
                "Distance from the straight line", "share of its length", curves
            )
        ],
    )


def derivative_error() -> float:
    """Return how far the derivative of cos((1 − x) a + x b, b) is from (1 − c²)(1 − x) / ‖·‖³ at most, and from ≥ 0.

    `a` and `b` have length 1 and cosine c; central differences in float64.
    """
    x, c = np.meshgrid(np.linspace(0.01, 0.99, 99), np.linspace(-0.9, 0.99, 64))

    def length(at: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        return np.sqrt((1 - at) ** 2 + at**2 + 2 * at * (1 - at) * c)

    def cosine(at: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        return np.asarray(((1 - at) * c + at) / length(at))

    step = 1e-5
    formula = (1 - c**2) * (1 - x) / length(x) ** 3
    slopes = (cosine(x + step) - cosine(x - step)) / (2 * step)
    return float(max(np.abs(slopes - formula).max(), -formula.min()))


def _with_probabilities(setup: Vision) -> list[Asset]:
    models = [model for kind in BOTH.values() for model in kind.seeds(setup)]
    return [*needs(*BOTH.values(), metrics=METRICS)(setup), *map(Predicted, models)]


@trained("T-thm2", metrics=METRICS, needs=_with_probabilities)
def label_probability_rises(bench: Bench) -> Evidence:
    """Count how often the label's probability rises where similarity does; show how far the assumptions hold.

    The theorem speaks of a sample and a step from one layer to the next, and only of steps in which
    the cosine to the last state rises; the others are not counted. It assumes collapse of the last
    layer, and its proof states of about the same norm: both are numbers.
    """
    intervals = {}
    numbers = []
    for name, kind in BOTH.items():
        states = bench.states(kind)
        shares = map(_rises_with_similarity, states, bench.label_probabilities(kind))
        intervals[f"rises {name}"] = mean([100 * share for share in shares])
        nc1 = [
            c.corr(c.index.to_series(), "spearman") for c in bench.curves(kind, "nc1")
        ]
        steady = [100 * float(steady_norm(each[:, 1:]).mean()) for each in states]
        numbers += [
            Number.of(f"Spearman correlation of NC1 with depth, {name}", mean(nc1)),
            Number.of(
                f"neighbouring layers of about the same norm, as the proof assumes, {name} [%]",
                mean(steady),
            ),
        ]
    return Evidence(
        intervals,
        numbers,
        plots=[bench.chart("Probability of the label by layer", "label_probability")],
    )


def _rises_with_similarity(
    states: npt.NDArray[np.float32], probability: pd.DataFrame
) -> float:
    """Return the share of steps in which the label's probability does not fall, among those with rising cosine."""
    nearer = np.diff(metrics.cosine_to(states)[:, 1:].numpy()) > 0
    rises = np.diff(probability.to_numpy()) >= 0
    return float(rises[nearer].mean())

"""The vision transformers of a scale as judges read them: histories, runs, predictions and exits, seed by seed."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import sub
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from layerscope.early_exit import ExitReport, open_exit_report
from layerscope.inputs import Corpus
from layerscope.logit_lens import open_reading
from layerscope.runs import Run, open_run
from layerscope.show import Chart
from layerscope_papers import drawing
from layerscope_papers.assets import Asset, Assets
from layerscope_papers.intervals import mean, paired
from layerscope_papers.recipe import Evidence, Number, Recipe, recipe
from layerscope_papers.vision import (
    BOTH,
    SCALES,
    Exiting,
    Kind,
    Predicted,
    Profiled,
    Trained,
    Vision,
)

METRICS = "cosine_similarity,cka"
ACCURACY = "layer_accuracy"
PERCENT = (ACCURACY, "saturated", "label_probability")
"""Metrics of a history that are shares, and given in percent."""


def needs(
    *kinds: Kind, metrics: str = "", exits: type[Exiting] | None = None
) -> Callable[[Vision], Sequence[Asset]]:
    """Return what a recipe needs: models of these kinds, runs of them with some metrics, reports of their exits."""

    def needed(setup: Vision) -> list[Asset]:
        models = [model for kind in kinds for model in kind.seeds(setup)]
        runs = [Profiled(model, metrics) for model in models] if metrics else []
        reports = map(exits, models) if exits else ()
        return [*models, *runs, *reports]

    return needed


@dataclass(frozen=True)
class Bench:
    """The models of a scale trained in several ways, as judges read them; each curve is a Series by layer.

    Attributes:
        assets: the folder of models and runs, with the settings of the scale.
        kinds: the ways to train, by name.
        metrics: names of the metrics that runs hold, separated by commas.

    """

    assets: Assets
    kinds: Mapping[str, Kind]
    metrics: str = ""

    @property
    def setup(self) -> Vision:
        """The scale."""
        settings: Vision = self.assets.settings
        return settings

    def folders(self, kind: Kind, asset: Callable[[Trained], Asset]) -> list[Path]:
        """Return the folder of an asset of each seed's model."""
        return [self.assets.get(asset(model)) for model in kind.seeds(self.setup)]

    def history(self, model: Asset) -> Run:
        """Return the history of a trained model."""
        return open_run(self.assets.get(model) / "history")

    def histories(self, kind: Kind) -> list[Run]:
        """Return the history of each seed."""
        return list(map(self.history, kind.seeds(self.setup)))

    def runs(self, kind: Kind) -> list[Run]:
        """Return the run of each seed."""
        profiled = partial(Profiled, metrics=self.metrics)
        return list(map(open_run, self.folders(kind, profiled)))

    def exits(self, kind: Kind, asset: type[Exiting]) -> list[ExitReport]:
        """Return the report of exits of each seed."""
        return list(map(open_exit_report, self.folders(kind, asset)))

    def training_accuracy(self, kind: Kind) -> list[pd.Series]:
        """Return the accuracy on training images by layer, 1 … L, for each seed."""
        read = [self._read(Predicted(model, True)) for model in kind.seeds(self.setup)]
        return [
            grid["is_label"].groupby(grid["layer"]).mean().loc[1:] for grid, _ in read
        ]

    def label_probabilities(self, kind: Kind) -> list[pd.DataFrame]:
        """Return the probability of each test image's label, `[image, layer 1 … L]`, for each seed."""
        tables = []
        for model in kind.seeds(self.setup):
            grid, corpus = self._read(Predicted(model))
            of_label = grid[grid["is_label"]]
            table = of_label.pivot(
                index="sample", columns="layer", values="probability"
            )
            present = pd.Index(corpus.names).intersection(table.index, sort=False)
            tables.append(table.loc[present, 1:])
        return tables

    def _read(self, asset: Predicted) -> tuple[pd.DataFrame, Corpus]:
        """Return what the lens read, with a column that says whether a prediction is the image's label; the images."""
        grid = open_reading(self.assets.get(asset)).grid
        grid = grid.astype({"sample": str, "prediction": str})
        corpus = asset.images(self.assets.data)
        labels = dict(zip(corpus.names, map(str, corpus.labels or ()), strict=True))
        is_label = grid["prediction"] == grid["sample"].map(labels)
        return grid.assign(is_label=is_label), corpus

    def states(self, kind: Kind) -> list[npt.NDArray[np.float32]]:
        """Return what the head would read of each test image at layers 0 … L, `[N, L+1, D]`, for each seed."""
        return [
            np.stack([run.pooled(layer) for layer in range(run.depth + 1)], axis=1)
            for run in self.runs(kind)
        ]

    def curves(self, kind: Kind, metric: str) -> list[pd.Series]:
        """Return a metric of the history by layer at the end of training, for each seed; shares in percent.

        Similarities are those to the last layer.
        """
        scale = 100.0 if metric in PERCENT else 1.0
        return [scale * at_end(history, metric) for history in self.histories(kind)]

    def gains(self, one: Kind, other: Kind, metric: str) -> list[pd.Series]:
        """Return how much more of a metric one kind has than another by layer, for each seed."""
        return list(map(sub, self.curves(one, metric), self.curves(other, metric)))

    def by_kind(self, metric: str) -> dict[str, list[pd.Series]]:
        """Return the curves of a metric by the kind's name."""
        return {name: self.curves(kind, metric) for name, kind in self.kinds.items()}

    def chart(self, title: str, metric: str) -> Chart:
        """Return a share by layer, mean over seeds, in one chart."""
        return drawing.mean_chart(title, "%", self.by_kind(metric))


def trained(
    name: str,
    *,
    kinds: Mapping[str, Kind] = BOTH,
    metrics: str = "",
    exits: type[Exiting] | None = None,
    **about: Any,
) -> Callable[[Callable[[Bench], Evidence]], Recipe]:
    """Return the decorator of a recipe that judges models trained in some ways; `about` is what differs from others.

    With `metrics` their runs are needed too, and with `exits` the reports of their exits.
    """
    fields: dict[str, Any] = {
        "scales": SCALES,
        "needs": needs(*kinds.values(), metrics=metrics, exits=exits),
    } | about
    return lambda judge: recipe(name, **fields)(
        lambda assets: judge(Bench(assets, kinds, metrics))
    )


def at_end(history: Run, metric: str) -> pd.Series:
    """Return a metric of a history by layer at the end of training; similarities are those to the last layer."""
    values = history.metric(metric)
    return values if isinstance(values, pd.Series) else values.iloc[:, -1]


def settled(histories: Mapping[str, Sequence[Run]]) -> Evidence:
    """Compare standard with aligned training seed by seed: the mean layer from which a prediction no longer changes."""
    layers = {}
    curves = {}
    for name, of in histories.items():
        layers[name] = [history.metric("saturation_layer").iloc[-1] for history in of]
        curves[name] = [100 * at_end(history, "saturated") for history in of]
    return Evidence(
        {"earlier": paired(layers["standard"], layers["aligned"])},
        [
            Number.of(f"mean saturation layer, {name}", mean(values))
            for name, values in layers.items()
        ],
        [drawing.mean_chart("Saturated predictions by layer", "%", curves)],
    )


def to_last(run: Run, metric: str = "cosine_similarity") -> pd.Series:
    """Return the similarity of each layer with the last one, layers 1 … L."""
    table = run.metric(metric)
    return numbered(table.iloc[:, -1])


def numbered(curve: pd.Series) -> pd.Series:
    """Return what is known of layers 1 … L, which have numbers."""
    is_block = [
        isinstance(layer, (int, np.integer)) and layer > 0 for layer in curve.index
    ]
    return curve[is_block]

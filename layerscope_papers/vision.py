"""Vision transformers trained from scratch, which most recipes of Tracing Representation Progression share."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from PIL import Image

from layerscope.core import LayerscopeError
from layerscope.early_exit import ExitReport, exits, open_exit_report
from layerscope.inputs import Corpus, open_corpus
from layerscope.logit_lens import open_reading
from layerscope.runs import Run, open_run
from layerscope.show import Chart
from layerscope_papers import drawing
from layerscope_papers.assets import Asset, Assets
from layerscope_papers.recipe import Evidence, Interval, Recipe, paired, recipe

Options = tuple[tuple[str, Any], ...]
Pixels = npt.NDArray[Any]
TEST = 500
"""Samples of digits that no model is trained on."""
NOISY, NOISE = "noisy digits", 0.4
"""A second data set without a download, and its noise in units of the range of pixels."""
OTHER = {"digits": NOISY, "cifar10": "imagenet"}
"""A second data set beside that of a scale."""


@dataclass(frozen=True)
class Vision:
    """One scale: the images, the shape of the model, how it is trained, and how often.

    Where images are `shifted`, each is learnt from at its place and moved by a pixel in the eight
    directions, so that an epoch has nine times as many.
    """

    data: str
    depth: int
    width: int
    heads: int
    size: int
    patch: int
    epochs: float
    batch_size: int
    learning_rate: float
    weight_decay: float
    augment: bool
    scheduler: str = "multistep"
    warmup: float = 0.0
    shifted: bool = False
    seeds: int = 5
    device: str = "auto"

    def config(self, depth: int) -> dict[str, Any]:
        """Return the model's configuration, as transformers read it."""
        return {
            "model_type": "vit",
            "architectures": ["ViTForImageClassification"],
            "hidden_size": self.width,
            "num_hidden_layers": depth,
            "num_attention_heads": self.heads,
            "intermediate_size": 4 * self.width,
            "image_size": self.size,
            "patch_size": self.patch,
            "num_channels": 3,
            "hidden_dropout_prob": 0.0,
            "attention_probs_dropout_prob": 0.0,
        }


SMALL = Vision(
    data="digits",
    depth=12,
    width=64,
    heads=4,
    size=8,
    patch=4,
    epochs=9,
    batch_size=64,
    learning_rate=1e-3,
    weight_decay=0.05,
    augment=False,
    scheduler="cosine",
    warmup=0.05,
    shifted=True,
)
"""Reads digits better than one nearest neighbour among the pixels does (98.4 %), and every layer a little better."""
PAPER = Vision(
    data="cifar10",
    depth=12,
    width=384,
    heads=6,
    size=32,
    patch=4,
    epochs=200,
    batch_size=256,
    learning_rate=5e-4,
    weight_decay=1e-4,
    augment=True,
    seeds=3,
    device="cuda",
)
"""DeiT-S on CIFAR-10. AdamW does not learn at the printed learning rate, 0.1; this is DeiT's own."""
SCALES: dict[Any, Vision] = {"small": SMALL, "paper": PAPER}


def images(setup: Vision, data: Path | None) -> tuple[Corpus, Corpus]:
    """Return training and test images of a scale."""
    if setup.data in ("digits", NOISY):
        from sklearn.model_selection import train_test_split

        whole = open_corpus("digits")
        if setup.data == NOISY:
            whole = changed(whole, lambda image, i: noisy(image, i, NOISE))
        train, test = train_test_split(
            np.arange(len(whole)), test_size=TEST, random_state=0, stratify=whole.labels
        )
        return whole.take(sorted(train)), replace(
            whole.take(sorted(test)), name="digits-test"
        )
    if data is None:
        return open_corpus("hf:cifar10:train"), open_corpus("hf:cifar10:test")
    found = next(iter(sorted((data / setup.data).glob("*"))), None)
    if found is None:
        raise LayerscopeError(
            f"{str(data)!r} has no folder {setup.data!r} with images: choose another with `data_dir`"
        )
    whole = open_corpus(found)
    test = [i for i, name in enumerate(whole.names) if "test" in name]
    rest = sorted(set(range(len(whole))) - set(test))
    return whole.take(rest), whole.take(test)


def changed(
    corpus: Corpus,
    change: Callable[[Pixels, int], Pixels],
    labels: Sequence[int] | None = None,
) -> Corpus:
    """Return images whose pixels are changed, given each image's number, with the labels given or their own."""
    found = [
        change(np.asarray(image, dtype=float), i)
        for i, image in enumerate(corpus.samples)
    ]
    samples = tuple(
        Image.fromarray(np.clip(np.rint(pixels), 0, 255).astype(np.uint8))
        for pixels in found
    )
    return replace(
        corpus,
        samples=samples,
        labels=corpus.labels if labels is None else tuple(labels),
    )


def noisy(image: Pixels, number: int, share: float) -> Pixels:
    """Return an image with normal noise, the same in all colours, whose deviation is a share of the range."""
    noise: Pixels = np.random.default_rng(number).normal(
        0, 255 * share, (*image.shape[:2], 1)
    )
    return image + noise


def shifted(corpus: Corpus) -> Corpus:
    """Return images at their place and moved by a pixel in eight directions; what enters is black."""
    samples, labels, names = [], [], []
    for image, label, name in zip(
        corpus.samples, corpus.labels or (), corpus.names, strict=True
    ):
        for right, down in product((-1, 0, 1), repeat=2):
            moved = image.transform(
                image.size, Image.Transform.AFFINE, (1, 0, -right, 0, 1, -down)
            )
            samples.append(moved)
            labels.append(label)
            names.append(f"{name} {right:+} {down:+}")
    return replace(
        corpus, samples=tuple(samples), labels=tuple(labels), names=tuple(names)
    )


@dataclass(frozen=True)
class Trained(Asset):
    """A vision transformer trained with an objective and a seed; `options` are those of `train` that differ."""

    setup: Vision
    objective: str
    seed: int
    options: Options = ()
    depth: int | None = None
    minutes = 1.3

    def __str__(self) -> str:
        words = [str(value) for _, value in self.options] + (
            [f"{self.depth} layers"] if self.depth else []
        )
        return " ".join([self.objective, *words, "seed", str(self.seed)])

    def make(self, out: Path, assets: Assets) -> None:
        """Train it, from its last checkpoint where there is one."""
        from layerscope import train

        setup = self.setup
        config = out.parent / f"{out.name}.json"
        out.parent.mkdir(parents=True, exist_ok=True)
        config.write_text(
            json.dumps(setup.config(self.depth or setup.depth)), encoding="utf-8"
        )
        training, test = images(setup, assets.data)
        train(
            config,
            shifted(training) if setup.shifted else training,
            test,
            out=out,
            from_config=True,
            objective=self.objective,
            seed=self.seed,
            epochs=setup.epochs,
            batch_size=setup.batch_size,
            learning_rate=setup.learning_rate,
            weight_decay=setup.weight_decay,
            augment=setup.augment,
            scheduler=setup.scheduler,
            warmup=setup.warmup,
            device=setup.device,
            progress=False,
            **dict(self.options),
        )


@dataclass(frozen=True)
class Profiled(Asset):
    """A run of a trained model on the test images."""

    model: Trained
    metrics: str
    named = "run of {model}"

    def make(self, out: Path, assets: Assets) -> None:
        """Profile it, from the shard where it was stopped."""
        profiled(
            self.model,
            images(self.model.setup, assets.data)[1],
            self.metrics.split(","),
            out,
            assets,
        )


@dataclass(frozen=True)
class Predicted(Asset):
    """What the head of a trained model says of each image at every layer: the test images, or as many training images.

    Of test images it is the probability of every class, of training images the likeliest class.
    """

    model: Trained
    of_training: bool = False

    def __str__(self) -> str:
        return f"predictions of {self.model}" + (
            ", training images" if self.of_training else ""
        )

    def images(self, data: Path | None) -> Corpus:
        """Return the images."""
        training, test = images(self.model.setup, data)
        return (
            training.take(range(min(len(training), len(test))))
            if self.of_training
            else test
        )

    def make(self, out: Path, assets: Assets) -> None:
        """Read the model with the lens."""
        from layerscope.logit_lens import lens

        corpus = self.images(assets.data)
        classes = len(set(corpus.labels or ()))
        lens(
            str(assets.get(self.model)),
            data=corpus,
            samples=len(corpus),
            top=1 if self.of_training else classes,
            device=self.model.setup.device,
            out=out,
            progress=False,
        )


def profiled(
    model: Trained, data: Corpus, metrics: Sequence[str], out: Path, assets: Assets
) -> None:
    """Profile a trained model on images, from the shard where an earlier call was stopped."""
    from layerscope.profiling import profile

    profile(
        str(assets.get(model)),
        data,
        out=out,
        metrics=metrics,
        samples="all",
        views=0,
        cka="biased",
        pooling="cls",
        device=model.setup.device,
        progress=False,
    )


@dataclass(frozen=True)
class Exiting(Asset):
    """A report of exits of a trained model, calibrated and measured on the test images."""

    model: Trained
    named = "exits of {model}"

    def make(self, out: Path, assets: Assets) -> None:
        """Calibrate and measure it."""
        _, test = images(self.model.setup, assets.data)
        device = self.model.setup.device
        exits(
            str(assets.get(self.model)),
            test,
            out=out,
            min_speedup=0.01,
            device=device,
            progress=False,
        )


@dataclass(frozen=True)
class Kind:
    """One way to train: an objective and the options of `train` that differ."""

    objective: str
    options: Options = ()
    depth: int | None = None

    def seeds(self, setup: Vision) -> list[Trained]:
        """Return the models of all seeds."""
        return [
            Trained(setup, self.objective, seed, self.options, self.depth)
            for seed in range(setup.seeds)
        ]


STANDARD, ALIGNED = Kind("standard"), Kind("aligned", (("schedule", "alternate"),))
ALWAYS = Kind("aligned", (("schedule", "always"),))
UNIFORM = Kind("aligned", (("schedule", "alternate"), ("weights", "uniform")))
CLASSIFIERS = Kind("classifiers", (("schedule", "alternate"),))
DISTILLED = Kind("classifiers", (("schedule", "alternate"), ("distillation", 1.0)))
BOTH = {"standard": STANDARD, "aligned": ALIGNED}
"""The two trainings that most claims compare."""
COSINE, CKA = (
    Kind("cosine", (("schedule", "alternate"),)),
    Kind("cka", (("schedule", "alternate"),)),
)


METRICS = "cosine_similarity,cka"
ACCURACY = "layer_accuracy"
PERCENT = (ACCURACY, "saturated", "label_probability")
"""Metrics of a history that are shares, and given in percent."""


def needs(
    *kinds: Kind, metrics: str = "", exits: bool = False
) -> Callable[[Vision], Sequence[Asset]]:
    """Return what a recipe needs: models of these kinds, runs of them with some metrics, reports of their exits."""

    def found(setup: Vision) -> list[Asset]:
        models = [model for kind in kinds for model in kind.seeds(setup)]
        runs = [Profiled(model, metrics) for model in models] if metrics else []
        return [
            *models,
            *runs,
            *([Exiting(model) for model in models] if exits else []),
        ]

    return found


@dataclass(frozen=True)
class Bench:
    """The models of a scale trained in several ways, as judges read them; each curve is a Series by layer."""

    assets: Assets
    kinds: Mapping[str, Kind]
    metrics: str = ""

    @property
    def setup(self) -> Vision:
        """The scale."""
        found: Vision = self.assets.settings
        return found

    def histories(self, kind: Kind) -> list[Run]:
        """Return the history of each seed."""
        return [
            open_run(self.assets.get(model) / "history")
            for model in kind.seeds(self.setup)
        ]

    def runs(self, kind: Kind) -> list[Run]:
        """Return the run of each seed."""
        return [
            open_run(self.assets.get(Profiled(model, self.metrics)))
            for model in kind.seeds(self.setup)
        ]

    def training_accuracy(self, kind: Kind) -> list[pd.Series]:
        """Return the accuracy on training images by layer, 1 … L, for each seed."""
        grids = [self._grid(Predicted(model, True)) for model in kind.seeds(self.setup)]
        return [
            grid["is_label"].groupby(grid["layer"]).mean().loc[1:] for grid in grids
        ]

    def label_probabilities(self, kind: Kind) -> list[pd.DataFrame]:
        """Return the probability of each test image's label, `[image, layer 1 … L]`, for each seed."""
        found = []
        for model in kind.seeds(self.setup):
            asset = Predicted(model)
            grid = self._grid(asset)
            table = grid[grid["is_label"]].pivot(
                index="sample", columns="layer", values="probability"
            )
            order = list(asset.images(self.assets.data).names)
            found.append(table.loc[[name for name in order if name in table.index], 1:])
        return found

    def _grid(self, asset: Predicted) -> pd.DataFrame:
        """Return what the lens read, with a column that says whether a prediction is the image's label."""
        grid, corpus = (
            open_reading(self.assets.get(asset)).grid,
            asset.images(self.assets.data),
        )
        grid = grid.astype({"sample": str, "prediction": str})
        labels = dict(zip(corpus.names, map(str, corpus.labels or ()), strict=True))
        return grid.assign(is_label=grid["prediction"] == grid["sample"].map(labels))

    def exits(self, kind: Kind) -> list[ExitReport]:
        """Return the report of exits of each seed."""
        return [
            open_exit_report(self.assets.get(Exiting(model)))
            for model in kind.seeds(self.setup)
        ]

    def states(self, kind: Kind) -> list[npt.NDArray[np.float32]]:
        """Return what the head would read of each test image at layers 0 … L, `[N, L+1, D]`, for each seed."""
        return [
            np.stack([run.pooled(layer) for layer in range(run.depth + 1)], axis=1)
            for run in self.runs(kind)
        ]

    def curves(self, kind: Kind, metric: str) -> list[pd.Series]:
        """Return a metric of the history by layer at the end of training, for each seed.

        Similarities are those to the last layer.
        """
        return [at_end(run, metric) for run in self.histories(kind)]

    def ends(self, metric: str, **which: Any) -> dict[str, list[float]]:
        """Return a metric of the whole model at the end of training for each seed, by the kind's name."""
        return {
            name: [
                float(run.metric(metric, **which).iloc[-1])
                for run in self.histories(kind)
            ]
            for name, kind in self.kinds.items()
        }

    def averages(self, metric: str) -> dict[str, pd.Series]:
        """Return a metric of the history by layer, mean over seeds, by the kind's name; shares in percent."""
        scale = 100.0 if metric in PERCENT else 1.0
        return {
            name: scale * pd.concat(self.curves(kind, metric), axis=1).mean(axis=1)
            for name, kind in self.kinds.items()
        }

    def chart(self, title: str, metric: str) -> Chart:
        """Return the averages of a share in one chart."""
        return drawing.chart(title, "%", self.averages(metric))

    def gain(
        self, one: Kind, other: Kind, metric: str, layer: int | None = None
    ) -> Interval:
        """Return how much more of a metric one kind has than another, seed by seed; of a share in percentage points.

        At a layer, or by default on average over all layers before the last.
        """
        scale = 100.0 if metric in PERCENT else 1.0

        def value(curve: pd.Series) -> float:
            return scale * float(
                curve.iloc[:-1].mean() if layer is None else curve.loc[layer]
            )

        return paired(
            map(value, self.curves(one, metric)), map(value, self.curves(other, metric))
        )


def trained(
    name: str,
    *,
    kinds: Mapping[str, Kind] = BOTH,
    metrics: str = "",
    exits: bool = False,
    **about: Any,
) -> Callable[[Callable[[Bench], Evidence]], Recipe]:
    """Return the decorator of a recipe that judges models trained in some ways; `about` is what differs from others.

    With `metrics` their runs are needed too, and with `exits` the reports of their exits.
    """
    known: dict[str, Any] = {
        "scales": SCALES,
        "needs": needs(*kinds.values(), metrics=metrics, exits=exits),
    } | about
    return lambda judge: recipe(name, **known)(
        lambda assets: judge(Bench(assets, kinds, metrics))
    )


def at_end(history: Run, metric: str) -> pd.Series:
    """Return a metric of a history by layer at the end of training; similarities are those to the last layer."""
    found = history.metric(metric)
    return found if isinstance(found, pd.Series) else found.iloc[:, -1]


def to_last(run: Run, metric: str = "cosine_similarity") -> pd.Series:
    """Return the similarity of each layer with the last one, layers 1 … L."""
    table = run.metric(metric)
    found = table.iloc[:, -1]
    return found[
        [
            layer
            for layer in found.index
            if isinstance(layer, (int, np.integer)) and layer > 0
        ]
    ]

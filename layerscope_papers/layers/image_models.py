"""Which image models have the valley: it is their objective and not the kind of data that decides (section 6)."""

from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from layerscope.runs import open_run
from layerscope_papers import drawing
from layerscope_papers.assets import Asset, Assets, Cost
from layerscope_papers.images import images
from layerscope_papers.intervals import mean
from layerscope_papers.language import ENTROPY, by_sample
from layerscope_papers.recipe import Evidence, Number, recipe
from layerscope_papers.released import valley, valleys

METRICS = (ENTROPY, "dataset_entropy", "linear_probe")
"""The paper probes with attention; a linear probe reads the model's own pooling."""


@dataclass(frozen=True)
class Objectives:
    """One scale: image models by how they were trained, and the images that they read.

    Attributes:
        autoregressive: models that predict the next patch.
        exceptions: others of which the paper says that they dip.
        others: supervised, contrastive, self-distilled and masked ones.
        data: name of the data set.
        samples: images that are read.
        device: where they are read.

    """

    autoregressive: tuple[str, ...] = ("apple/aimv2-large-patch14-224",)
    exceptions: tuple[str, ...] = ("microsoft/beit-base-patch16-224-pt22k",)
    others: tuple[str, ...] = (
        "google/vit-base-patch16-224",
        "openai/clip-vit-base-patch16",
        "facebook/dinov2-base",
        "facebook/vit-mae-base",
    )
    data: str = "imagenet"
    samples: int = 5000
    device: str = "cuda"

    @property
    def models(self) -> tuple[str, ...]:
        """All models."""
        return (*self.autoregressive, *self.exceptions, *self.others)


@dataclass(frozen=True)
class Seen(Asset):
    """A run of an image model on test images."""

    setup: Objectives
    model: str
    named = "images seen by {model}"

    @property
    def cost(self) -> Cost:
        """About what it takes, for models of about the size of ViT-B."""
        return Cost.of(9e7, 200 * self.setup.samples, on_gpu=True, learns=False)

    def make(self, out: Path, assets: Assets) -> None:
        """Profile the model, from the shard where it was stopped."""
        from layerscope.profiling import profile

        setup = self.setup
        _, test = images(setup.data, assets.data)
        profile(
            self.model,
            test,
            out=out,
            metrics=METRICS,
            samples=setup.samples,
            views=0,
            device=setup.device,
            progress=False,
        )


@recipe(
    "L-fig14",
    scales={"paper": Objectives()},
    needs=lambda setup: [Seen(setup, model) for model in setup.models],
)
def by_objective(assets: Assets) -> Evidence:
    """Take the valley image by image, and how dataset entropy and accuracy go with depth model by model."""
    setup = assets.settings
    runs = {}
    for model in setup.models:
        runs[model] = open_run(assets.get(Seen(setup, model)))
    entropy, accuracy = (
        {model: run.metric(metric).loc[1:] for model, run in runs.items()}
        for metric in METRICS[1:]
    )
    by_image = [
        valleys(by_sample(runs[model])["raw"]) for model in setup.autoregressive
    ]
    intervals = {
        "valley": mean(pd.concat(by_image, axis=1).mean(axis=1).tolist()),
        "steady": mean([_rise(entropy[model]) for model in setup.others]),
        "accuracy": mean(list(map(_rise, accuracy.values()))),
    }
    numbers = [
        Number(f"valley of dataset entropy, {model} [nats]", valley(entropy[model]))
        for model in setup.exceptions
    ]
    plots = [
        drawing.chart("Dataset entropy by depth", "nats", entropy, by_depth=True),
        drawing.chart("Linear probe by depth", "accuracy", accuracy, by_depth=True),
    ]
    return Evidence(intervals, numbers, plots)


def _rise(curve: pd.Series) -> float:
    """Return how a curve goes with the layer's number, as Spearman's correlation."""
    return float(curve.corr(curve.index.to_series(), "spearman"))

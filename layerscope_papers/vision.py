"""Vision transformers trained from scratch, which most recipes of Tracing Representation Progression share."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from layerscope.early_exit import exits
from layerscope.inputs import Corpus
from layerscope_papers.assets import Asset, Assets, Cost
from layerscope_papers.images import IMAGES, images, shifted

Options = tuple[tuple[str, Any], ...]


@dataclass(frozen=True)
class Vision:
    """One scale: the images, the shape of the model, how it is trained, and how often.

    Attributes:
        data: name of the data set.
        depth: blocks.
        width: dimensions of a token.
        heads: attention heads of a block.
        size: pixels of an image's side.
        patch: pixels of a patch's side.
        epochs: passes over the training images.
        batch_size: images of a step.
        learning_rate: highest of the schedule.
        weight_decay: AdamW's.
        augment: whether images are cropped, mirrored and turned at random.
        scheduler: name of the schedule, as `train` takes it.
        warmup: share of the steps in which the rate rises.
        shifted: whether each image is learnt from at its place and moved by a pixel in the eight
            directions, so that an epoch has nine times as many.
        seeds: models of each kind.
        device: where they are trained and read.

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
    seeds: int = field(default=5, repr=False)
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
    depth=8,
    width=64,
    heads=4,
    size=8,
    patch=4,
    epochs=9,
    batch_size=128,
    learning_rate=1.5e-3,
    weight_decay=0.05,
    augment=False,
    scheduler="cosine",
    warmup=0.05,
    shifted=True,
    seeds=12,
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
OTHER = {
    SMALL.data: replace(
        SMALL, data="cifar10", size=32, patch=8, shifted=False, seeds=4
    ),
    PAPER.data: replace(PAPER, data="imagenet", size=224, patch=16),
}
"""By the data set of a scale the same model for a second, harder one: four of CIFAR-10 take two cores 20 minutes."""


@dataclass(frozen=True)
class Pretrained(Vision):
    """A scale at which a model of the hub is tuned, whose shape the other fields describe."""

    hub: str = "facebook/deit-small-patch16-224"


TUNED = Pretrained(**vars(PAPER) | {"size": 224, "patch": 16, "epochs": 10})
"""DeiT-S, trained on ImageNet and tuned on CIFAR-10 (figure 1); the paper does not say for how long."""


@dataclass(frozen=True)
class Trained(Asset):
    """A vision transformer trained with an objective and a seed; `options` are those of `train` that differ."""

    setup: Vision
    objective: str
    seed: int
    options: Options = ()
    depth: int | None = None

    @property
    def cost(self) -> Cost:
        """About what it takes, by the blocks' parameters and the patches that they read."""
        setup = self.setup
        blocks = 12 * setup.width**2 * (self.depth or setup.depth)
        places = 9 if setup.shifted else 1
        patches = (setup.size // setup.patch) ** 2 + 1
        tokens = setup.epochs * IMAGES[setup.data] * places * patches
        return Cost.of(blocks, tokens, on_gpu=setup.device == "cuda", learns=True)

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
        start = setup.hub if isinstance(setup, Pretrained) else config
        training, test = images(setup.data, assets.data)
        train(
            start,
            shifted(training) if setup.shifted else training,
            test,
            out=out,
            from_config=start is config,
            head="auto" if start is config else "new",
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
            dtype="bf16" if setup.device == "cuda" else "float32",
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
            images(self.model.setup.data, assets.data)[1],
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
        training, test = images(self.model.setup.data, data)
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
    threshold: ClassVar[float | None] = None

    def make(self, out: Path, assets: Assets) -> None:
        """Calibrate and measure it."""
        _, test = images(self.model.setup.data, assets.data)
        device = self.model.setup.device
        exits(
            str(assets.get(self.model)),
            test,
            out=out,
            threshold=self.threshold,
            min_speedup=0.01,
            device=device,
            progress=False,
        )


@dataclass(frozen=True)
class Confident(Exiting):
    """A report of exits at every layer, which a sample leaves at a set threshold (figure 7; it is not in print)."""

    named = "exits at any layer of {model}"
    threshold = 0.9


@dataclass(frozen=True)
class Kind:
    """One way to train.

    Attributes:
        objective: as `train` names it.
        options: options of `train` that differ from its defaults.
        depth: blocks of the model, None for those of the scale.
        most: seeds at most, where claims need no more: what they compare lies far apart, or is
            shown and not judged.

    """

    objective: str
    options: Options = ()
    depth: int | None = None
    most: int | None = None

    def seeds(self, setup: Vision) -> list[Trained]:
        """Return the model of each seed."""
        return [
            Trained(setup, self.objective, seed, self.options, self.depth)
            for seed in range(setup.seeds)[: self.most]
        ]


STANDARD, ALIGNED = Kind("standard"), Kind("aligned", (("schedule", "alternate"),))
ALWAYS = Kind("aligned", (("schedule", "always"),), most=4)
UNIFORM = Kind("aligned", (("schedule", "alternate"), ("weights", "uniform")), most=6)
CLASSIFIERS = Kind("classifiers", (("schedule", "alternate"),))
DISTILLED = Kind("aligned", (("schedule", "alternate"), ("distillation", 1.0)), most=6)
BOTH = {"standard": STANDARD, "aligned": ALIGNED}
"""The two trainings that most claims compare."""
COSINE, CKA = (
    Kind("cosine", (("schedule", "alternate"),), most=6),
    Kind("cka", (("schedule", "alternate"),), most=6),
)

"""Similarity rises with depth within each of CLIP's towers and across them (figures 22 and 23)."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from layerscope.comparison import Comparison, compare, open_comparison
from layerscope.inputs import Corpus
from layerscope.scores import spearman
from layerscope_papers import drawing, language, vision
from layerscope_papers.assets import Asset, Assets
from layerscope_papers.images import images
from layerscope_papers.intervals import mean
from layerscope_papers.recipe import Evidence, Number, recipe

TEMPLATES = (
    "This is a photo of a {}",
    "The digit {}",
    "A scan of the number {}",
    "Somebody wrote a {}",
)
"""Captions that models are trained on; all are judged on the first, which is the paper's."""
WORDS: dict[str | int | float, str] = dict(
    enumerate(
        ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
    )
)
SEES, READS = "layer of vision", "layer of text"
MAPS = {
    "within vision": (SEES, SEES),
    "within text": (READS, READS),
    "across": (SEES, READS),
}


@dataclass(frozen=True)
class Shape:
    """One scale: the images, and models of the hub or the shape of those that are trained here.

    Attributes:
        images: settings of the images.
        models: names of the hub, or seeds.
        trained: whether models are trained here.
        depth: blocks of each tower.
        width: dimensions of a token, and of the space that both share.
        context: tokens of a caption, at most.
        steps: training steps.
        learning_rate: AdamW's.

    """

    images: vision.Vision
    models: tuple[str, ...]
    trained: bool = True
    depth: int = 6
    width: int = 64
    context: int = 24
    steps: int = 1500
    learning_rate: float = 1e-3

    def config(self) -> dict[str, Any]:
        """Return the arguments of a `CLIPConfig` of this shape."""
        tower = {
            "hidden_size": self.width,
            "num_hidden_layers": self.depth,
            "num_attention_heads": 4,
            "intermediate_size": 4 * self.width,
        }
        ends = {
            "vocab_size": 512,
            "max_position_embeddings": self.context,
            "bos_token_id": 0,
            "eos_token_id": 0,
        }
        sees = {"image_size": self.images.size, "patch_size": self.images.patch}
        return {
            "text_config": tower | ends,
            "vision_config": tower | sees,
            "projection_dim": self.width,
        }


@dataclass(frozen=True)
class Towers(Asset):
    """A comparison of the two towers of a CLIP over test images and their captions."""

    shape: Shape
    model: str
    minutes = 0.9
    named = "CLIP {model}"

    def make(self, out: Path, assets: Assets) -> None:
        """Train the model where it is trained here, and profile and compare both towers in the space they share."""
        from layerscope.profiling import profile

        training, test = images(self.shape.images.data, assets.data)
        model, processor = (
            trained(self.shape, int(self.model), training)
            if self.shape.trained
            else (self.model, None)
        )
        data = {"images": test.samples, "captions": captions(test, TEMPLATES[0])}
        runs = []
        for name, samples in data.items():
            tokenizer = (
                {"processor": processor}
                if name == "captions" and processor is not None
                else {}
            )
            profile(
                model,
                list(samples),
                out=out / name,
                metrics=["cosine_similarity"],
                samples="all",
                views=0,
                device=self.shape.images.device,
                progress=False,
                **tokenizer,
            )
            runs.append(out / name)
        compare(
            runs,
            paired=True,
            site="projected",
            cosine="centered",
            out=out / "comparison",
            progress=False,
        )


def captions(corpus: Corpus, template: str) -> list[str]:
    """Return a caption for each labelled image."""
    return [
        template.format(WORDS.get(label, str(label))) for label in corpus.labels or ()
    ]


def trained(shape: Shape, seed: int, training: Corpus) -> tuple[Any, Any]:
    """Return a CLIP trained from random weights, and its tokenizer; a batch holds an image of each class."""
    import torch
    from transformers import CLIPConfig, CLIPModel

    from layerscope.models import encoder_for

    torch.manual_seed(seed)
    model = CLIPModel(CLIPConfig(**shape.config()))
    draws = np.random.default_rng(seed)
    texts = [captions(training, template) for template in TEMPLATES]
    setup = replace(language.SMALL, vocabulary=512, context=shape.context)
    every = [text for some in texts for text in some]
    tokenizer = language.byte_pairs(every, setup, "$A <end>")
    pixels = (
        encoder_for("image", None, model).batch(training.samples).named["pixel_values"]
    )
    labels = np.array(training.labels)
    classes = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=shape.learning_rate, weight_decay=0.05
    )
    for _ in range(shape.steps):
        # no caption fits two images of a batch
        chosen = [int(draws.choice(members)) for members in classes]
        words = [texts[draws.integers(len(texts))][i] for i in chosen]
        read = tokenizer(words, padding=True, return_tensors="pt")
        loss = model(
            input_ids=read["input_ids"],
            attention_mask=read["attention_mask"],
            pixel_values=pixels[chosen],
            return_loss=True,
        ).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval(), tokenizer


def _squares(comparison: Comparison) -> list[pd.DataFrame]:
    """Return centred cosines within vision, within text and across, layers 1 … L; at layer 0 all images are alike."""
    pairs = ((0, 0), (1, 1), (0, 1))
    return [
        comparison.similarity(a, b, "cosine_similarity", "centered").iloc[1:, 1:]
        for a, b in pairs
    ]


def _rises(comparison: Comparison) -> dict[str, float]:
    """Return how similarity to the tower's last layer goes with depth, and to the other tower's."""
    vision, text, across = (square.to_numpy() for square in _squares(comparison))
    both_ways = _rise(across[:, -1]), _rise(across[-1])
    return {
        "within vision": _rise(vision[:-1, -1]),
        "within text": _rise(text[:-1, -1]),
        "across": float(np.mean(both_ways)),
    }


def _rise(similarities: npt.NDArray[np.float64]) -> float:
    """Return the Spearman correlation of similarities with their layer's number."""
    return float(spearman(similarities, np.arange(len(similarities), dtype=float)))


HUB = tuple(
    f"openai/clip-vit-{kind}"
    for kind in ("base-patch32", "base-patch16", "large-patch14")
)


@recipe(
    "T-fig22",
    scales={
        "small": Shape(vision.SMALL, tuple(map(str, range(10)))),
        "paper": Shape(vision.PAPER, HUB, trained=False),
    },
    needs=lambda shape: [Towers(shape, model) for model in shape.models],
)
def towers_apart(assets: Assets) -> Evidence:
    """Correlate similarity to the last layers with depth, within each tower and across them, model by model."""
    shape = assets.settings
    models = [
        open_comparison(assets.get(Towers(shape, model)) / "comparison")
        for model in shape.models
    ]
    rises = pd.DataFrame([_rises(comparison) for comparison in models])
    gaps = [
        float(comparison.similarity(metric="modality_gap").iloc[-1, -1])
        for comparison in models
    ]
    centred = [float(_squares(comparison)[-1].iloc[-1, -1]) for comparison in models]
    numbers = [
        Number.of(
            "distance between the centres of images and captions, last layers",
            mean(gaps),
        ),
        Number.of("centred cosine of the last layers across towers", mean(centred)),
    ]
    plots = [
        drawing.heat_map(f"Centred cosine {title}", square, *axes)
        for (title, axes), square in zip(MAPS.items(), _squares(models[0]), strict=True)
    ]
    return Evidence({name: mean(list(rises[name])) for name in rises}, numbers, plots)

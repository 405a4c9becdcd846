"""Detectors: with a loss at every decoder layer, a detector's layers before the last detect too."""

import json
from dataclasses import dataclass, field
from operator import sub
from pathlib import Path
from typing import Any

import pandas as pd

from layerscope.core import write_json
from layerscope_papers import drawing
from layerscope_papers.assets import Asset, Assets
from layerscope_papers.intervals import at_last, before_last
from layerscope_papers.recipe import Evidence, recipe

KINDS = {"a loss at every layer": True, "last-layer loss": False}
TEST = 256


@dataclass(frozen=True)
class Shape:
    """One scale: the canvases, the detector, how long it is trained, and how often.

    Attributes:
        size: pixels of a canvas's side.
        images: canvases to learn from.
        depth: decoder layers.
        width: dimensions of an object's state.
        queries: objects that are looked for.
        steps: training steps.
        batch_size: canvases of a step.
        learning_rate: AdamW's.
        seeds: detectors of each kind.

    """

    size: int = 32
    images: int = 2000
    depth: int = 6
    width: int = 64
    queries: int = 5
    steps: int = 1500
    batch_size: int = 16
    learning_rate: float = 2e-3
    seeds: int = field(default=8, repr=False)


@dataclass(frozen=True)
class Detector(Asset):
    """A DETR trained to find digits on canvases, and the AP50 of its decoder layers on other digits."""

    shape: Shape
    every: bool
    seed: int
    minutes = 1.0

    def __str__(self) -> str:
        return f"detector with {'a loss at every layer' if self.every else 'last-layer loss'} seed {self.seed}"

    def make(self, out: Path, assets: Assets) -> None:
        """Train it from random weights, and judge it."""
        from layerscope_papers.detection import (
            ap50_by_layer,
            digit_canvases,
            train_detector,
        )

        shape = self.shape
        model = detector(self.shape, self.seed)
        learnt = digit_canvases(shape.images, shape.size)
        held = digit_canvases(TEST, shape.size, held_out=True)
        train_detector(
            model,
            *learnt,
            steps=shape.steps,
            batch_size=shape.batch_size,
            learning_rate=shape.learning_rate,
            seed=self.seed,
            layers=None if self.every else [shape.depth],
        )
        out.mkdir(parents=True, exist_ok=True)
        write_json(out / "ap50.json", {"ap50": ap50_by_layer(model, *held)})


def detector(shape: Shape, seed: int) -> Any:
    """Return a DETR with random weights, all of which are trained: transformers freezes a DETR's backbone."""
    import torch
    import transformers

    torch.manual_seed(seed)
    backbone = transformers.ResNetConfig(
        embedding_size=shape.width // 2,
        hidden_sizes=[shape.width // 2],
        depths=[1],
        layer_type="basic",
        out_features=["stage1"],
    )
    config = transformers.DetrConfig(
        backbone_config=backbone,
        use_timm_backbone=False,
        d_model=shape.width,
        encoder_layers=1,
        decoder_layers=shape.depth,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=2 * shape.width,
        decoder_ffn_dim=2 * shape.width,
        num_queries=shape.queries,
        num_labels=1,
        dropout=0.0,
    )
    return transformers.DetrForObjectDetection(config).requires_grad_(True)


def ap50(assets: Assets, asset: Detector) -> pd.Series:
    """Return the AP50 of a detector's decoder layers, percent."""
    precisions = json.loads(
        (assets.get(asset) / "ap50.json").read_text(encoding="utf-8")
    )["ap50"]
    return pd.Series(
        [100 * value for value in precisions], index=range(1, len(precisions) + 1)
    )


@recipe(
    "T-fig18",
    scales={"small": Shape()},
    needs=lambda shape: [
        Detector(shape, every, seed)
        for every in KINDS.values()
        for seed in range(shape.seeds)
    ],
)
def earlier_detections(assets: Assets) -> Evidence:
    """Compare both losses seed by seed."""
    curves = {
        name: [
            ap50(assets, Detector(assets.settings, every, seed))
            for seed in range(assets.settings.seeds)
        ]
        for name, every in KINDS.items()
    }
    gains = list(map(sub, *curves.values()))
    intervals = {"earlier": before_last(gains), "last": at_last(gains)}
    return Evidence(
        intervals, plots=[drawing.mean_chart("AP50 by decoder layer", "%", curves)]
    )

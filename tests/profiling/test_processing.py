"""How images and sounds become inputs is a part of what a run is of."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
import torch
import transformers as hf
from PIL import Image

import layerscope
from layerscope.core.errors import LayerscopeError
from layerscope.inputs import open_corpus
from layerscope.models import LoadOptions, Override, find_layers, load

SMALL = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
}
WAVES = [
    (np.random.default_rng(i).normal(size=1600).astype("float32"), 16000)
    for i in range(4)
]
IMAGES = [
    Image.fromarray(
        np.random.default_rng(i).integers(0, 255, (16, 16, 3), dtype="uint8")
    )
    for i in range(6)
]


@dataclass
class Scaled:
    """A transform that prints its settings, as those of torchvision and timm do."""

    by: float

    def __call__(self, image: Image.Image) -> torch.Tensor:
        return (
            torch.from_numpy(np.array(image, dtype="float32")).permute(2, 0, 1)
            * self.by
        )


@pytest.fixture
def vit(tmp_path: Path) -> Path:
    tiny.seeded(
        hf.ViTModel, hf.ViTConfig(**SMALL, image_size=16, patch_size=8)
    ).save_pretrained(tmp_path / "vit")
    hf.ViTImageProcessor(size={"height": 16, "width": 16}).save_pretrained(
        tmp_path / "vit"
    )
    return tmp_path / "vit"


def found(model: Any, samples: Any, processor: Any = None) -> Any:
    corpus = open_corpus(samples)
    return find_layers(
        load(model, LoadOptions(), processor),
        corpus.modality,
        corpus.samples,
        Override(),
    )


def test_a_run_is_not_resumed_with_other_preprocessing(
    vit: Path, tmp_path: Path
) -> None:
    how = {"out": tmp_path / "run", "views": 0, "progress": False}
    layerscope.profile(vit, IMAGES, **how)
    other = hf.ViTImageProcessor(
        size={"height": 16, "width": 16}, image_mean=[0.2, 0.5, 0.5]
    )
    other.save_pretrained(vit)
    with pytest.raises(LayerscopeError, match=r"holds another run \(preprocessing: "):
        layerscope.profile(vit, IMAGES, **how)

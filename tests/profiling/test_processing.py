"""How images become inputs is a part of what a run is of."""

import numpy as np
import transformers as hf
from models import zoo
from PIL import Image
from typed import refused

import layerscope


def test_a_run_is_not_resumed_with_other_preprocessing(tmp_path):
    rng, folder = np.random.default_rng(0), str(tmp_path / "vit")
    pixels = rng.integers(0, 255, (6, 16, 16, 3), dtype="uint8")
    images = [*map(Image.fromarray, pixels)]
    zoo.seeded("ViTModel", 2, image_size=16, patch_size=8).save_pretrained(folder)
    size = {"height": 16, "width": 16}
    hf.ViTImageProcessor(size=size).save_pretrained(folder)
    how = {"out": tmp_path / "run", "views": 0}
    layerscope.profile(folder, images, **how)
    other = hf.ViTImageProcessor(size=size, image_mean=[0.2, 0.5, 0.5])
    other.save_pretrained(folder)
    with refused(r"holds another run \(preprocessing: "):
        layerscope.profile(folder, images, **how)

"""How images become inputs is a part of what a run is of."""

import numpy as np
import tiny
import transformers as hf
from PIL import Image
from typed import refused

import layerscope


def test_a_run_is_not_resumed_with_other_preprocessing(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 255, (6, 16, 16, 3), dtype="uint8")
    files = str(tiny.vit(tmp_path / "vit")), [*map(Image.fromarray, pixels)]
    how = {"out": tmp_path / "run", "views": 0}
    layerscope.profile(*files, **how)
    size = {"height": 16, "width": 16}
    other = hf.ViTImageProcessor(size=size, image_mean=[0.2, 0.5, 0.5])
    other.save_pretrained(tmp_path / "vit")
    with refused(r"holds another run \(preprocessing: "):
        layerscope.profile(*files, **how)

"""Runs of two-tower models: every layer's vectors in the shared space, against the model's own features."""

import numpy as np
import pytest
import torch
from models.tokenizer import word_tokenizer
from models.zoo import D, P, clip, siglip
from PIL import Image

import layerscope
from layerscope import metrics
from layerscope.models import LoadOptions, load
from layerscope.models.encode import encoder_for

N = 20
METRICS = ["dataset_entropy", "effective_rank", "infonce", "lidar", "dime"]


def samples(modality):
    if modality == "text":
        draw = np.random.default_rng(0)
        words = [
            draw.integers(3, 98, size=int(n)) for n in draw.integers(1, 12, size=N)
        ]
        # of many lengths, so that most are padded
        return [" ".join(f"w{i}" for i in [*text, 98]) for text in words]
    noise = np.random.default_rng(0).integers(
        0, 256, size=(N, 16, 16, 3), dtype=np.uint8
    )
    return [Image.fromarray(pixels) for pixels in noise]


@torch.inference_mode()
def features(model, modality, depth):
    """What the model itself gives for each sample alone, its tower cut to some of its blocks."""
    loaded = load(
        model, LoadOptions(), word_tokenizer(size=99) if modality == "text" else None
    )
    encoder = encoder_for(modality, loaded.processor_for(modality), model)
    tower = getattr(model, {"text": "text_model", "image": "vision_model"}[modality])
    whole, tower.encoder.layers = tower.encoder.layers, tower.encoder.layers[:depth]
    own = getattr(model, f"get_{modality}_features")
    found = [
        own(**encoder.batch([sample]).named).pooler_output
        for sample in samples(modality)
    ]
    tower.encoder.layers = whole
    return torch.cat(found).numpy()


def profiled(model, modality, out, **options):
    processor = word_tokenizer(size=99) if modality == "text" else None
    asked = {
        "metrics": METRICS,
        "batch_size": 7,
        "pooling": "mean",
        "views": 1,
    } | options
    return layerscope.profile(
        model, samples(modality), out=out, processor=processor, **asked
    )


@pytest.mark.parametrize(
    "make, modality, width",
    [
        (clip, "text", P),
        (clip, "image", P),
        (siglip, "image", D),
    ],
)
def test_every_layer_holds_the_models_own_features(make, modality, width, tmp_path):
    model = make()
    run = profiled(model, modality, tmp_path / "run")
    assert (
        run.info["model"]["projected"] == {"width": width}
        and run.info["model"]["width"] == D
    )
    for depth in range(4):
        found = run.pooled(depth, site="projected")
        np.testing.assert_allclose(
            found, features(model, modality, depth), rtol=1e-5, atol=1e-5
        )
    assert run.pooled(1).shape == (N, D)
    table = run.table()
    rows = table[table["site"] == "projected"]
    assert (
        set(rows["metric"]) == set(METRICS)
        and set(rows["pooling"]) == {"own"}
        and rows["value"].notna().all()
    )
    assert all(
        list(part["layer"]) == [0, 1, 2, 3] for _, part in rows.groupby("metric")
    )
    expected = float(
        metrics.effective_rank(torch.tensor(run.pooled(2, site="projected")).double())
    )
    assert run.metric("effective_rank", site="projected")[2] == pytest.approx(
        expected, rel=1e-5
    )
    # nothing else moves: the default is the raw site at the pooling that was asked for
    assert run.metric("effective_rank")[2] != pytest.approx(expected, rel=1e-5)


def test_a_run_that_goes_on_has_them_and_half_precision_keeps_them(tmp_path):
    model, how = clip(), {"store_dtype": "float16", "metrics": "dataset_entropy"}
    run = profiled(model, "image", tmp_path / "run", **how)
    shard = run.path / "shards" / f"{run.folder.shards[0]:05d}.safetensors"
    shard.unlink()
    again = profiled(model, "image", tmp_path / "run", **how)
    assert shard.is_file()
    found = again.pooled(3, site="projected")
    np.testing.assert_allclose(found, features(model, "image", 3), rtol=2e-3, atol=2e-3)

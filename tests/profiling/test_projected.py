"""Runs of two-tower models: every layer's vectors in the shared space, against the model's own features."""

import numpy as np
import pytest
import torch
from models.tokenizer import word_tokenizer, words
from models.zoo import D, P, clip, siglip
from PIL import Image

import layerscope
from layerscope import metrics
from layerscope.models import LoadOptions, load
from layerscope.models.encode import encoder_for

N = 20
METRICS = ["dataset_entropy", "effective_rank", "infonce", "lidar", "dime"]
WORDS = word_tokenizer(size=99)


def samples(modality):
    draw = np.random.default_rng(0)
    if modality == "text":
        # of many lengths, so that most are padded
        lengths = draw.integers(1, 12, size=N)
        return [words([*draw.integers(3, 98, size=n), 98]) for n in lengths]
    noise = draw.integers(0, 256, size=(N, 16, 16, 3), dtype=np.uint8)
    return [*map(Image.fromarray, noise)]


@torch.inference_mode()
def features(model, modality, depth):
    """What the model itself gives for each sample alone, its tower cut to some of its blocks."""
    loaded = load(model, LoadOptions(), WORDS if modality == "text" else None)
    encoder = encoder_for(modality, loaded.processor_for(modality), model)
    tower = model.text_model if modality == "text" else model.vision_model
    whole, tower.encoder.layers = tower.encoder.layers, tower.encoder.layers[:depth]
    own = getattr(model, f"get_{modality}_features")
    batches = [encoder.batch([sample]).named for sample in samples(modality)]
    found = [own(**batch).pooler_output for batch in batches]
    tower.encoder.layers = whole
    return torch.cat(found).numpy()


def profiled(model, modality, out, **options):
    how = {
        "processor": WORDS if modality == "text" else None,
        "metrics": METRICS,
        "batch_size": 7,
        "pooling": "mean",
        "views": 1,
    }
    return layerscope.profile(model, samples(modality), out=out, **how | options)


@pytest.mark.parametrize(
    "make, modality, width",
    [(clip, "text", P), (clip, "image", P), (siglip, "image", D)],
)
def test_every_layer_holds_the_models_own_features(make, modality, width, tmp_path):
    model = make()
    run = profiled(model, modality, tmp_path / "run")
    about = run.info["model"]
    assert about["projected"] == {"width": width} and about["width"] == D
    for depth in range(4):
        found, own = run.pooled(depth, "projected"), features(model, modality, depth)
        np.testing.assert_allclose(found, own, rtol=1e-5, atol=1e-5)
    assert run.pooled(1).shape == (N, D)
    rows = run.table().query("site == 'projected'")
    assert set(rows["pooling"]) == {"own"} and rows["value"].notna().all()
    layers = rows.groupby("metric")["layer"].agg(list).to_dict()
    assert layers == dict.fromkeys(METRICS, [0, 1, 2, 3])
    rank = float(metrics.effective_rank(run.pooled(2, "projected").astype(float)))
    near = pytest.approx(rank, rel=1e-5)
    assert run.metric("effective_rank", site="projected")[2] == near
    # nothing else moves: the default is the raw site at the pooling that was asked for
    assert run.metric("effective_rank")[2] != near


def test_a_run_that_goes_on_has_them_and_half_precision_keeps_them(tmp_path):
    model, how = clip(), {"store_dtype": "float16", "metrics": "dataset_entropy"}
    run = profiled(model, "image", tmp_path / "run", **how)
    shard = run.path / "shards" / f"{run.folder.shards[0]:05d}.safetensors"
    shard.unlink()
    again = profiled(model, "image", tmp_path / "run", **how)
    assert shard.is_file()
    found = again.pooled(3, site="projected")
    np.testing.assert_allclose(found, features(model, "image", 3), rtol=2e-3, atol=2e-3)

"""Runs of two-tower models: every layer's vectors in the shared space, against the model's own features."""

import io
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
import torch
import transformers as hf
from chromium import unpacked
from models.tokenizer import word_tokenizer
from models.zoo import COMMON, D, build
from PIL import Image

import layerscope
from layerscope import LayerscopeError, metrics
from layerscope.core.files import read_json, write_json
from layerscope.models import LoadOptions, load
from layerscope.models.encode import encoder_for
from layerscope.runs.curves import curves
from layerscope.show.terminal import show

one_thread = tiny.one_thread

P, N = 24, 20
VISION = {
    "hidden_size": D, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 64, "image_size": 16,
    "patch_size": 4,
}  # fmt: skip
METRICS = ["dataset_entropy", "effective_rank", "infonce", "lidar", "dime"]


def clip() -> torch.nn.Module:
    ends = dict(COMMON, eos_token_id=98)  # the greatest id ends a text
    return build(
        lambda: hf.CLIPModel(
            hf.CLIPConfig(text_config=ends, vision_config=VISION, projection_dim=P)
        )
    )


def siglip() -> torch.nn.Module:
    texts = dict(COMMON, projection_size=P)
    return build(lambda: hf.SiglipModel(hf.SiglipConfig(text_config=texts, vision_config=VISION)))


def samples(modality: str) -> list:
    if modality == "text":
        draw = np.random.default_rng(0)
        words = [draw.integers(3, 98, size=int(n)) for n in draw.integers(1, 12, size=N)]
        # of many lengths, so that most are padded
        return [" ".join(f"w{i}" for i in [*text, 98]) for text in words]
    noise = np.random.default_rng(0).integers(0, 256, size=(N, 16, 16, 3), dtype=np.uint8)
    return [Image.fromarray(pixels) for pixels in noise]


@torch.inference_mode()
def features(model: torch.nn.Module, modality: str, depth: int) -> np.ndarray:
    """What the model itself gives for each sample alone, its tower cut to some of its blocks."""
    loaded = load(model, LoadOptions(), word_tokenizer(size=99) if modality == "text" else None)
    encoder = encoder_for(modality, loaded.processor_for(modality), model)
    tower = getattr(model, {"text": "text_model", "image": "vision_model"}[modality])
    whole, tower.encoder.layers = tower.encoder.layers, tower.encoder.layers[:depth]
    own = getattr(model, f"get_{modality}_features")
    found = [own(**encoder.batch([sample]).named).pooler_output for sample in samples(modality)]
    tower.encoder.layers = whole
    return torch.cat(found).numpy()


def profiled(model: torch.nn.Module, modality: str, out: Path, **options: object) -> layerscope.Run:
    processor = word_tokenizer(size=99) if modality == "text" else None
    asked = {
        "metrics": METRICS,
        "batch_size": 7,
        "pooling": "mean",
        "views": 1,
        "progress": False,
    } | options
    return layerscope.profile(model, samples(modality), out=out, processor=processor, **asked)


@pytest.mark.parametrize(
    ("make", "modality", "width"),
    [
        (clip, "text", P),
        (clip, "image", P),
        (siglip, "text", P),
        (siglip, "image", D),
    ],
)
def test_every_layer_holds_the_models_own_features(
    make, modality: str, width: int, tmp_path: Path
) -> None:
    model = make()
    run = profiled(model, modality, tmp_path / "run")
    assert run.info["model"]["projected"] == {"width": width} and run.info["model"]["width"] == D
    for depth in range(4):
        found = run.pooled(depth, site="projected")
        np.testing.assert_allclose(found, features(model, modality, depth), rtol=1e-5, atol=1e-5)
    assert run.pooled(1).shape == (N, D)
    table = run.table()
    rows = table[table["site"] == "projected"]
    assert (
        set(rows["metric"]) == set(METRICS)
        and set(rows["pooling"]) == {"own"}
        and rows["value"].notna().all()
    )
    assert all(list(part["layer"]) == [0, 1, 2, 3] for _, part in rows.groupby("metric"))
    expected = float(metrics.effective_rank(torch.tensor(run.pooled(2, site="projected")).double()))
    assert run.metric("effective_rank", site="projected")[2] == pytest.approx(expected, rel=1e-5)
    # nothing else moves: the default is the raw site at the pooling that was asked for
    assert run.metric("effective_rank")[2] != pytest.approx(expected, rel=1e-5)


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> layerscope.Run:
    return profiled(clip(), "image", tmp_path_factory.mktemp("made") / "run", metrics="default")


def test_it_is_a_curve_of_its_own_in_the_terminal_and_on_the_page(
    images: layerscope.Run, tmp_path: Path, content_of: Callable[[Path], dict[str, Any]]
) -> None:
    from rich.console import Console

    known = [c for c in curves(images) if c.site == "projected"]
    assert {c.metric for c in known} == {*METRICS, "infonce_bound"} and {
        c.layers for c in known
    } == {(0, 1, 2, 3)}
    console = Console(record=True, width=120, file=io.StringIO())
    show(images.document(), console)
    printed = console.export_text()
    assert "the model's" in printed and "projection" in printed
    page = layerscope.report(images, tmp_path / "page.html")
    drawn = {
        row["series"]
        for figure in content_of(page)["figures"]
        for choice in figure["choices"]
        for row in unpacked(choice)
        if "series" in row
    }
    assert any("the model's projection" in series for series in drawn)
    pairs = images.table()[images.table()["layer_b"].notna()]
    assert len(pairs) and "projected" not in set(pairs["site"])


def test_a_run_that_goes_on_has_them_and_half_precision_keeps_them(
    images: layerscope.Run, tmp_path: Path
) -> None:
    model = clip()
    run = profiled(model, "image", tmp_path / "run", store_dtype="float16")
    shard = run.path / "shards" / f"{run.folder.shards[0]:05d}.safetensors"
    shard.unlink()
    again = profiled(model, "image", tmp_path / "run", store_dtype="float16")
    assert shard.is_file()
    for layer in (0, 3):
        whole = images.pooled(layer, site="projected")
        np.testing.assert_allclose(
            again.pooled(layer, site="projected"), whole, rtol=2e-3, atol=2e-3
        )


def test_runs_without_them_open_as_before(images: layerscope.Run, tmp_path: Path) -> None:
    shutil.copytree(images.path, tmp_path / "run")
    path = tmp_path / "run" / "run.json"
    manifest = read_json(path)
    del manifest["model"]["projected"]
    write_json(path, manifest)
    older = layerscope.open_run(tmp_path / "run")
    assert older.projected == () and older.pooled(3).shape == (N, D)
    with pytest.raises(LayerscopeError, match="^site 'projected' is not in this run: it has raw"):
        older.pooled(3, site="projected")
    with pytest.raises(LayerscopeError, match="^pooling 'mean' is not in this run: it has own$"):
        images.pooled(3, site="projected", pooling="mean")


class Broken(torch.nn.Module):
    """A projection that gives NaN for a sample whose vector points one way."""

    def __init__(self, own: torch.nn.Module, weight: torch.Tensor) -> None:
        super().__init__()
        self.own, self.mark = own, weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = self.own(x)
        near = torch.nn.functional.cosine_similarity(found, self.mark) > 0.9999
        return found.masked_fill(near[:, None], torch.nan)


def test_a_sample_that_breaks_in_the_shared_space_alone_is_left_out(
    images: layerscope.Run, tmp_path: Path
) -> None:
    model = clip()
    model.visual_projection = Broken(
        model.visual_projection, torch.tensor(images.pooled(2, site="projected")[11:12])
    )
    run = profiled(model, "image", tmp_path / "run", metrics="effective_rank")
    assert set(run.table()["n"]) == {N - 1} and set(run.table()["n_skipped"]) == {1}
    broken = [
        file.get_tensor("broken") for shard in run.folder.shards for file in [_opened(run, shard)]
    ]
    assert sorted(torch.cat(broken).tolist()) == [-1] * (N - 1) + [2]


def _opened(run: layerscope.Run, shard: int):
    from safetensors import safe_open

    return safe_open(run.path / "shards" / f"{shard:05d}.safetensors", framework="pt")

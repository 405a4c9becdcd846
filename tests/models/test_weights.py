"""Models whose weights are not plain tensors on one device: offloaded, quantised, compiled."""

from pathlib import Path

import pandas as pd
import pytest
import tiny
import torch
import transformers as hf
from models.zoo import refused
from tiny import one_thread

import layerscope
from layerscope.models import LoadOptions, load
from layerscope.models.weights import is_quantised

__all__ = ["one_thread"]
OPTIONS = {"processor": tiny.tokenizer(special=False), "progress": False}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.saved(tiny.llama(), tmp_path_factory.mktemp("llama"), special=False)


@pytest.fixture(scope="module")
def plain(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> layerscope.Run:
    model = hf.AutoModelForCausalLM.from_pretrained(folder)
    return layerscope.profile(
        model, tiny.texts(12), out=tmp_path_factory.mktemp("run") / "plain", **OPTIONS
    )


def assert_same(one: layerscope.Run, other: layerscope.Run) -> None:
    pd.testing.assert_frame_equal(one.table(), other.table(), check_exact=True)
    assert one.info["model"]["weights"] == other.info["model"]["weights"]


def test_a_model_offloaded_to_disk_gives_what_it_gives_in_memory(
    folder: Path, plain, tmp_path: Path
) -> None:
    pytest.importorskip("accelerate")
    cpu = dict.fromkeys(
        (
            "model.embed_tokens",
            "model.norm",
            "model.rotary_emb",
            "lm_head",
            "model.layers.0",
        ),
        "cpu",
    )
    places = {**cpu, "model.layers.1": "disk", "model.layers.2": "disk"}
    model = hf.AutoModelForCausalLM.from_pretrained(
        folder, device_map=places, offload_folder=tmp_path / "off"
    )
    assert model.model.layers[2].mlp.up_proj.weight.is_meta
    assert_same(
        layerscope.profile(model, tiny.texts(12), out=tmp_path / "run", **OPTIONS),
        plain,
    )
    with refused(match="are offloaded: load it whole, without a device map"):
        layerscope.truncate(model, 2, tmp_path / "cut", **OPTIONS)


def test_a_model_larger_than_the_memory_it_may_take(
    folder: Path, plain, tmp_path: Path
) -> None:
    pytest.importorskip("accelerate")
    how = {
        "device": "map",
        "max_memory": "cpu=40KB",
        "offload": tmp_path / "off",
        "progress": False,
    }
    run = layerscope.profile(str(folder), tiny.texts(12), out=tmp_path / "run", **how)
    assert_same(run, plain)
    loaded = load(str(folder), LoadOptions(device="map", max_memory={"cpu": "40KB"}))
    assert sum(weight.is_meta for weight in loaded.module.parameters()) > 0
    with refused(match="models spread over several devices: add `device='map'`"):
        layerscope.profile(
            str(folder), tiny.texts(12), out=tmp_path / "n", **how | {"device": "cpu"}
        )


def test_a_model_wholly_offloaded_and_a_compiled_one(
    folder: Path, plain, tmp_path: Path
) -> None:
    accelerate = pytest.importorskip("accelerate")
    read = hf.AutoModelForCausalLM.from_pretrained
    offloaded = accelerate.cpu_offload(read(folder), torch.device("cpu"))
    assert all(weight.is_meta for weight in offloaded.parameters())
    compiled = torch.compile(read(folder), backend="eager")
    for name, model in (("offloaded", offloaded), ("compiled", compiled)):
        run = layerscope.profile(model, tiny.texts(12), out=tmp_path / name, **OPTIONS)
        assert_same(run, plain)
        assert run.info["model"]["class"] == "LlamaForCausalLM"


def test_dynamically_quantised(tmp_path: Path) -> None:
    model = torch.ao.quantization.quantize_dynamic(
        tiny.llama(), {torch.nn.Linear}, dtype=torch.qint8
    )
    assert is_quantised(model) and not is_quantised(tiny.llama())
    run = layerscope.profile(model, tiny.texts(12), out=tmp_path / "run", **OPTIONS)
    # activations are quantised by the range of the whole batch: no sample may have company
    assert run.info["model"]["batching"] is False
    with refused(match="is quantised: truncate the model it was made from"):
        layerscope.truncate(model, 2, tmp_path / "cut", **OPTIONS)
    with refused(match="is quantised or offloaded: give a whole model in floats"):
        layerscope.train(model, tiny.texts(12), out=tmp_path / "trained", **OPTIONS)


@pytest.mark.parametrize("library", ["torchao", "quanto"])
def test_quantised_by_a_library(library: str, tmp_path: Path) -> None:
    model = tiny.classifier()
    if library == "torchao":
        quantization = pytest.importorskip(
            "torchao.quantization",
            reason="beside torch for CPUs torchao warns in every command",
        )
        quantization.quantize_(model, quantization.Int8WeightOnlyConfig())
    else:
        from optimum import quanto

        quanto.quantize(model, weights=quanto.qint8)
        quanto.freeze(model)
    options = {"processor": tiny.tokenizer(special=True), "progress": False}
    run = layerscope.profile(model, tiny.texts(12), out=tmp_path / "run", **options)
    assert run.depth == 3 and len(run.info["model"]["weights"]) == 64
    assert any("quantised" in note for note in run.info["notes"])
    with refused(match="is quantised: truncate the model it was made from"):
        layerscope.truncate(model, 2, tmp_path / "cut", **options)

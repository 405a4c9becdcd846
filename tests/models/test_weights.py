"""Models whose weights are not plain tensors on one device: offloaded, quantised, compiled."""

import re
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
        ("model.embed_tokens", "model.norm", "model.rotary_emb", "lm_head", "model.layers.0"), "cpu"
    )
    places = {**cpu, "model.layers.1": "disk", "model.layers.2": "disk"}
    model = hf.AutoModelForCausalLM.from_pretrained(
        folder, device_map=places, offload_folder=tmp_path / "off"
    )
    assert model.model.layers[2].mlp.up_proj.weight.is_meta
    assert_same(layerscope.profile(model, tiny.texts(12), out=tmp_path / "run", **OPTIONS), plain)
    with refused(match="are offloaded: load it whole, without a device map"):
        layerscope.truncate(model, 2, tmp_path / "cut", **OPTIONS)


def test_a_model_larger_than_the_memory_it_may_take(folder: Path, plain, tmp_path: Path) -> None:
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
    (tmp_path / "file").touch()
    for wrong, line in (
        (
            {"max_memory": "cpu=lots"},
            "max_memory has 'cpu=lots': give each device an amount, such as 0=20GB,cpu=64GB",
        ),
        (
            {"device": "cpu"},
            "`max_memory` is for models spread over several devices: add `device='map'`",
        ),
        ({"offload": tmp_path / "file"}, "is a file"),
    ):
        with refused(match=re.escape(line)):
            layerscope.profile(
                str(folder), tiny.texts(12), out=tmp_path / "none", **{**how, **wrong}
            )


def test_a_model_wholly_offloaded(folder: Path, plain, tmp_path: Path) -> None:
    accelerate = pytest.importorskip("accelerate")
    model = accelerate.cpu_offload(
        hf.AutoModelForCausalLM.from_pretrained(folder), torch.device("cpu")
    )
    assert all(weight.is_meta for weight in model.parameters())
    assert_same(layerscope.profile(model, tiny.texts(12), out=tmp_path / "run", **OPTIONS), plain)


def test_a_compiled_model_is_the_one_inside(folder: Path, plain, tmp_path: Path) -> None:
    model = torch.compile(hf.AutoModelForCausalLM.from_pretrained(folder), backend="eager")
    run = layerscope.profile(model, tiny.texts(12), out=tmp_path / "run", **OPTIONS)
    assert_same(run, plain)
    assert run.info["model"]["class"] == "LlamaForCausalLM"
    assert (layerscope.truncate(model, 2, tmp_path / "cut", **OPTIONS) / "config.json").is_file()


def test_dynamically_quantised(tmp_path: Path) -> None:
    model = torch.ao.quantization.quantize_dynamic(
        tiny.llama(), {torch.nn.Linear}, dtype=torch.qint8
    )
    assert is_quantised(model) and not is_quantised(tiny.llama())
    run = layerscope.profile(model, tiny.texts(12), out=tmp_path / "run", **OPTIONS)
    # activations are quantised by the range of the whole batch: no sample may have company
    assert run.info["model"]["batching"] is False and run.info["model"]["language_model"] is True
    other = torch.ao.quantization.quantize_dynamic(
        tiny.llama(1), {torch.nn.Linear}, dtype=torch.qint8
    )
    with refused(match="holds another run"):
        layerscope.profile(other, tiny.texts(12), out=tmp_path / "run", **OPTIONS)
    with refused(match="is quantised: truncate the model it was made from"):
        layerscope.truncate(model, 2, tmp_path / "cut", **OPTIONS)
    with refused(match="is quantised: only whole models in floats are trained"):
        layerscope.train(model, tiny.texts(12), out=tmp_path / "trained", **OPTIONS)


@pytest.mark.parametrize("library", ["torchao", "quanto"])
def test_quantised_by_a_library(library: str, tmp_path: Path) -> None:
    model = tiny.classifier()
    if library == "torchao":
        quantization = pytest.importorskip(
            "torchao.quantization", reason="beside torch for CPUs torchao warns in every command"
        )
        quantization.quantize_(model, quantization.Int8WeightOnlyConfig())
    else:
        from optimum import quanto

        quanto.quantize(model, weights=quanto.qint8)
        quanto.freeze(model)
    options = {"processor": tiny.tokenizer(special=True), "progress": False}
    run = layerscope.profile(model, tiny.texts(12), out=tmp_path / "run", **options)
    assert run.depth == 3 and len(run.info["model"]["weights"]) == 64
    labelled = (tiny.texts(40), [i % 3 for i in range(40)])
    assert any("quantised" in note for note in run.info["notes"])
    report = layerscope.exits(model, labelled, max_disagreement=0.5, **options)
    assert report.depth == 3
    if library == "torchao":  # its tensors have no storage of their own, which safetensors needs
        with refused(
            match="quantised weights of .* cannot be written again: leave `out` out",
        ):
            layerscope.exits(
                model, labelled, max_disagreement=0.5, out=tmp_path / "exits", **options
            )
    with refused(match="is quantised: truncate the model it was made from"):
        layerscope.truncate(model, 2, tmp_path / "cut", **options)

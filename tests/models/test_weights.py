"""Models whose weights are not plain tensors on one device: offloaded, quantised, compiled."""

import pandas as pd
import pytest
import tiny
import torch
import transformers as hf
from typed import refused

import layerscope
from layerscope.models import LoadOptions, load
from layerscope.models.weights import is_quantised

TOKENIZER = tiny.tokenizer(special=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny.saved(tiny.llama(), tmp_path_factory.mktemp("llama"))


def profiled(model, out, processor=TOKENIZER):
    return layerscope.profile(model, tiny.texts(12), out=out, processor=processor)


@pytest.fixture(scope="module")
def plain(folder, tmp_path_factory):
    model = hf.AutoModelForCausalLM.from_pretrained(folder)
    return profiled(model, tmp_path_factory.mktemp("run") / "plain")


def assert_same(one, other):
    pd.testing.assert_frame_equal(one.table(), other.table(), check_exact=True)
    assert one.info["model"]["weights"] == other.info["model"]["weights"]


def test_a_model_offloaded_to_disk_gives_what_it_gives_in_memory(
    folder, plain, tmp_path
):
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
    assert type(load(str(folder), LoadOptions(device="map")).module) is type(model)
    assert_same(profiled(model, tmp_path / "run"), plain)
    with refused("are offloaded: load it whole, without a device map"):
        layerscope.truncate(model, 2, tmp_path / "cut", processor=TOKENIZER)


def test_weights_in_parts_of_several_processes_are_refused():
    from torch import distributed as dist
    from torch.distributed.tensor import distribute_module, init_device_mesh

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        model = distribute_module(tiny.llama(), init_device_mesh("cpu", (1,)))
        with refused("each process holds a part of LlamaForCausalLM: load it"):
            load(model, LoadOptions())
    finally:
        dist.destroy_process_group()


def test_a_model_wholly_offloaded_and_a_compiled_one(folder, plain, tmp_path):
    accelerate = pytest.importorskip("accelerate")
    read = hf.AutoModelForCausalLM.from_pretrained
    offloaded = accelerate.cpu_offload(read(folder), torch.device("cpu"))
    assert all(weight.is_meta for weight in offloaded.parameters())
    compiled = torch.compile(read(folder), backend="eager")
    for name, model in (("offloaded", offloaded), ("compiled", compiled)):
        run = profiled(model, tmp_path / name)
        assert_same(run, plain)
        assert run.info["model"]["class"] == "LlamaForCausalLM"


def test_dynamically_quantised(tmp_path):
    model = torch.ao.quantization.quantize_dynamic(
        tiny.llama(), {torch.nn.Linear}, dtype=torch.qint8
    )
    assert is_quantised(model) and not is_quantised(tiny.llama())
    run = profiled(model, tmp_path / "run")
    # activations are quantised by the range of the whole batch: no sample may have company
    assert run.info["model"]["batching"] is False
    with refused("is quantised: truncate the model it was made from"):
        layerscope.truncate(model, 2, tmp_path / "cut", processor=TOKENIZER)
    with refused("is quantised or offloaded: give a whole model in floats"):
        layerscope.train(
            model, tiny.texts(12), out=tmp_path / "trained", processor=TOKENIZER
        )


def test_quantised_by_quanto(tmp_path):
    from optimum import quanto

    model = tiny.classifier()
    quanto.quantize(model, weights=quanto.qint8)
    quanto.freeze(model)
    processor = tiny.tokenizer(special=True)
    run = profiled(model, tmp_path / "run", processor)
    assert run.depth == 3 and len(run.info["model"]["weights"]) == 64
    assert any("quantised" in note for note in run.info["notes"])
    with refused("is quantised: truncate the model it was made from"):
        layerscope.truncate(model, 2, tmp_path / "cut", processor=processor)

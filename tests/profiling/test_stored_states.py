"""A run of states from files is that of the model they came from; the files are written from transformers alone."""

import re
from functools import partial

import numpy as np
import pandas as pd
import pytest
import tiny
import torch
from recorded import walk
from safetensors.torch import save_file
from typed import refused

import layerscope
from layerscope.inputs.state_files import open_states

TEXTS = tiny.texts(60)
LABELS = ["a" if i % 3 else "b" for i in range(60)]
OF_THE_MODEL = ("layer_accuracy", "perplexity", "saturation_layer", "saturated")
ROUNDED = ("rsa", "alpha_req")
"""Ranks of near ties, and a spectrum that a norm has taken a direction from: another batch size moves these as much."""
NAMES = ["metric", "variant", "layer", "site", "layer_b", "site_b", "pooling"]


def write_requests(folder, states, ids):
    """Write what vLLM writes for its requests: token ids, states [tokens, layers, D], and a lock that stays."""
    folder.mkdir()
    for i, (layers, row) in enumerate(zip(states, ids, strict=True)):
        tensors = {
            "hidden_states": layers.transpose(0, 1).contiguous(),
            "token_ids": torch.tensor(row),
        }
        save_file(tensors, folder / f"{i}-f3a.safetensors")
        (folder / f"{i}-f3a.safetensors.lock").touch()


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory):
    """A folder with a saved GPT-2, its tokenizer, a table of texts, and requests of all and of some of its layers."""
    folder, model = tmp_path_factory.mktemp("gpt2"), tiny.gpt2()
    tiny.saved(model, folder / "model")
    table = pd.DataFrame({"text": TEXTS, "label": LABELS})
    table.to_csv(folder / "texts.csv", index=False)
    ids = tiny.tokenizer(special=False)(TEXTS)["input_ids"]
    states = [walk(model, text)[0] for text in TEXTS]
    write_requests(folder / "all", states, ids)
    write_requests(folder / "some", [layers[[1, 3]] for layers in states], ids)
    return folder


def profiled(folder, name, out, **options):
    options = {"layers": range(4), "data": str(folder / "texts.csv")} | options
    return layerscope.profile(states=folder / name, out=out, **options)


def direct(folder, out, **options):
    """Return the run of the model itself, without its norm."""
    files = str(folder / "model"), str(folder / "texts.csv")
    how = {"norm": "none", "views": 0, "pooling": "mean,last"} | options
    return layerscope.profile(*files, out=out, **how)


@pytest.fixture(scope="module")
def whole(gpt2, tmp_path_factory):
    return direct(gpt2, tmp_path_factory.mktemp("direct") / "run")


def assert_same_table(run, other, left_out):
    one, two = (
        table[~table["metric"].isin(left_out)].sort_values(NAMES, ignore_index=True)
        for table in (run.table(), other.table())
    )
    exact = [*NAMES, "n", "n_skipped"]
    pd.testing.assert_frame_equal(one[exact], two[exact])
    for name in ("value", "stderr"):
        np.testing.assert_allclose(one[name], two[name], 1e-6, 1e-6, err_msg=name)


assert_close = partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-6)


def test_requests_without_a_model_give_the_table_of_the_model_without_its_norm(
    gpt2, tmp_path
):
    options = {"metrics": "all", "pooling": "mean,last", "exclude_sinks": True}
    run = profiled(gpt2, "all", tmp_path / "run", **options)
    model = direct(gpt2, tmp_path / "direct", **options)
    without = (*OF_THE_MODEL, "infonce", "infonce_bound", "lidar", "dime")
    assert_same_table(run, model, [*without, *ROUNDED])
    assert not {*run.table()["metric"]}.intersection(without)
    for layer in range(4):
        assert_close(run.pooled(layer), model.pooled(layer))


def test_some_layers_keep_their_numbers(gpt2, whole, tmp_path, capfd):
    how = {"layers": [1, 3], "progress": True}
    run = profiled(gpt2, "some", tmp_path / "run", **how)
    told = capfd.readouterr().err
    for line in (
        "layers 1,3 (32 wide)",
        "other layers are missing",
        "the states end at layer 3",
    ):
        assert line in told
    for metric in ("prompt_entropy", "effective_rank", "linear_probe"):
        pooling = None if metric == "prompt_entropy" else "mean"
        wanted = whole.metric(metric, pooling=pooling)
        assert_close(run.metric(metric), wanted.loc[[1, 3]])
        assert run.metric(metric).index.tolist() == [1, 3]
    square = whole.metric("cka", pooling="mean").loc[[1, 3], [1, 3]]
    assert_close(run.metric("cka", pooling="mean"), square, rtol=1e-7)
    assert_close(run.pooled(3), whole.pooled(3))
    with refused("layer 2 is not in this run: it has 1, 3"):
        run.pooled(2)
    assert run.document().facts[:2] == ("layers 1,3", "32 wide")
    assert not run.info["model"]["whole"] and run.report().is_file()


@pytest.mark.parametrize(
    "form, how",
    [({"tokens": True}, {}), ({"pooling": "mean,last"}, {"pooling": "last"})],
    ids=["tokens", "pooled"],
)
def test_what_extract_wrote_is_read(gpt2, whole, tmp_path, form, how):
    files = str(gpt2 / "model"), pd.read_csv(gpt2 / "texts.csv")
    where = {"out": tmp_path / "states", "site": "raw"}
    made = layerscope.extract(*files, [0, 2, 3], **where, **form)
    run = layerscope.profile(states=made.path, out=tmp_path / "run", **how)
    pooling = how.get("pooling", "mean")
    assert run.layers == (0, 2, 3) and run.info["pooling"] == [pooling]
    for layer in run.layers:
        assert_close(run.pooled(layer), whole.pooled(layer, pooling=pooling))
    assert run.info["model"]["whole"] and len(run.metric("knn_probe")) == 3


def test_a_killed_run_goes_on_and_other_states_are_refused(gpt2, tmp_path):
    run = profiled(gpt2, "all", tmp_path / "run")
    table = run.table()
    (run.path / "tables" / "pooled.parquet").unlink()
    for path in run.path.glob("shards/00001*"):
        path.unlink()
    again = profiled(gpt2, "all", tmp_path / "run")
    pd.testing.assert_frame_equal(again.table(), table)
    with refused("holds another run"):
        profiled(gpt2, "some", tmp_path / "run", layers=[1, 3])


@pytest.mark.parametrize("shape", [(5, 2, 8), (3, 1, 8)])
def test_a_request_of_other_tokens_or_layers_is_named_with_its_own_numbers(
    tmp_path, shape
):
    for name, own in (("a", (3, 2, 8)), ("b", shape)):
        tensors = {"token_ids": torch.arange(3), "hidden_states": torch.zeros(own)}
        save_file(tensors, tmp_path / f"{name}.safetensors")
    line = f"b.safetensors: hidden_states is {[*shape]} beside 3 token_ids"
    with refused(re.escape(line)):
        open_states(tmp_path, [0, 1])

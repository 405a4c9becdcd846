"""A run of states from files is that of the model they came from; the files are written from transformers alone."""

import numpy as np
import pandas as pd
import pytest
import tiny
import torch
from safetensors.torch import save_file
from typed import refused

import layerscope
from layerscope.inputs.state_files import open_states

TEXTS = tiny.texts(60)
LABELS = ["a" if i % 3 else "b" for i in range(60)]
OF_VIEWS = ("infonce", "infonce_bound", "lidar", "dime")
ROUNDED = ("rsa", "alpha_req")
"""Ranks of near ties, and a spectrum that a norm has taken a direction from: another batch size moves these as much."""
NAMES = ["metric", "variant", "layer", "site", "layer_b", "site_b", "pooling"]


def raw_states(model, ids, norm):
    """Return the states [L + 1, T, D] before the final norm, as transformers and a hook on that norm give them."""
    last = []
    hook = model.get_submodule(norm).register_forward_pre_hook(
        lambda _, args: last.append(args[0])
    )
    with torch.inference_mode():
        found = model(
            input_ids=torch.tensor([ids]), output_hidden_states=True
        ).hidden_states
    hook.remove()
    return torch.cat([*found[:-1], last[0]])


def write_requests(folder, model, rows, norm, layers):
    """Write what vLLM writes for its requests: token ids, states [tokens, layers, D], and a lock that stays."""
    folder.mkdir()
    for i, ids in enumerate(rows):
        states = raw_states(model, ids, norm)[list(layers)].transpose(0, 1).contiguous()
        save_file(
            {"hidden_states": states, "token_ids": torch.tensor(ids)},
            folder / f"{i}-f3a.safetensors",
        )
        (folder / f"{i}-f3a.safetensors.lock").touch()


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory):
    """A folder with a saved GPT-2, its tokenizer, a table of texts, and requests of all and of some of its layers."""
    folder = tmp_path_factory.mktemp("gpt2")
    model, tokenizer = tiny.gpt2(), tiny.tokenizer(special=False)
    model.save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    pd.DataFrame({"text": TEXTS, "label": LABELS}).to_csv(
        folder / "texts.csv", index=False
    )
    rows = [tokenizer(text)["input_ids"] for text in TEXTS]
    write_requests(folder / "all", model, rows, "transformer.ln_f", range(4))
    write_requests(folder / "some", model, rows, "transformer.ln_f", [1, 3])
    return folder


def profiled(folder, name, out, **options):
    options = {
        "layers": range(4),
        "data": str(folder / "texts.csv"),
    } | options
    return layerscope.profile(states=folder / name, out=out, **options)


def direct(folder, out, **options):
    return layerscope.profile(
        str(folder / "model"),
        str(folder / "texts.csv"),
        out=out,
        views=0,
        **options,
    )


@pytest.fixture(scope="module")
def whole(gpt2, tmp_path_factory):
    """The run of the model itself, without its norm."""
    out = tmp_path_factory.mktemp("direct") / "run"
    return direct(gpt2, out, norm="none", pooling="mean,last")


def assert_same_table(run, other, left_out=()):
    one, two = (
        table[~table["metric"].isin([*OF_VIEWS, *left_out])]
        for table in (run.table(), other.table())
    )
    one, two = (table.sort_values(NAMES, ignore_index=True) for table in (one, two))
    pd.testing.assert_frame_equal(
        one[[*NAMES, "n", "n_skipped"]], two[[*NAMES, "n", "n_skipped"]]
    )
    for name in ("value", "stderr"):
        np.testing.assert_allclose(
            one[name], two[name], rtol=1e-6, atol=1e-6, err_msg=name
        )


def test_requests_without_a_model_give_the_table_of_the_model_without_its_norm(
    gpt2, tmp_path
):
    options = {"metrics": "all", "pooling": "mean,last", "exclude_sinks": True}
    run = profiled(gpt2, "all", tmp_path / "run", **options)
    model = direct(gpt2, tmp_path / "direct", norm="none", **options)
    lens = (
        "layer_accuracy",
        "perplexity",
        "saturation_layer",
        "saturated",
    )
    assert_same_table(run, model, [*lens, *ROUNDED])
    assert not set(run.table()["metric"]) & {*lens, *OF_VIEWS}
    for layer in range(4):
        np.testing.assert_allclose(
            run.pooled(layer), model.pooled(layer), rtol=1e-5, atol=1e-6
        )


def test_some_layers_keep_their_numbers(gpt2, whole, tmp_path, capfd):
    run = profiled(
        gpt2,
        "some",
        tmp_path / "run",
        layers=[1, 3],
        progress=True,
    )
    told = capfd.readouterr().err
    assert (
        "layers 1,3 (32 wide)" in told
        and "other layers are missing" in told
        and "the states end at layer 3" in told
    )
    for metric in (
        "prompt_entropy",
        "effective_rank",
        "linear_probe",
    ):
        pooling = None if metric == "prompt_entropy" else "mean"
        wanted = whole.metric(metric, pooling=pooling)
        np.testing.assert_allclose(run.metric(metric), wanted.loc[[1, 3]], rtol=1e-5)
        assert run.metric(metric).index.tolist() == [1, 3]
    square = whole.metric("cka", pooling="mean").loc[[1, 3], [1, 3]]
    np.testing.assert_allclose(run.metric("cka", pooling="mean"), square, atol=1e-6)
    np.testing.assert_allclose(run.pooled(3), whole.pooled(3), rtol=1e-5, atol=1e-6)
    with refused("layer 2 is not in this run: it has 1, 3"):
        run.pooled(2)
    assert run.document().facts[:2] == ("layers 1,3", "32 wide")
    assert not run.info["model"]["whole"] and run.report().is_file()


@pytest.mark.parametrize("kind", ["tokens", "mean,last"])
def test_what_extract_wrote_is_read(gpt2, whole, tmp_path, kind):
    tokens = kind == "tokens"
    form = {"tokens": True} if tokens else {"pooling": kind}
    data = pd.read_csv(gpt2 / "texts.csv")
    made = layerscope.extract(
        str(gpt2 / "model"),
        data,
        [0, 2, 3],
        out=tmp_path / "states",
        site="raw",
        **form,
    )
    options = {} if tokens else {"pooling": "last"}
    run = layerscope.profile(states=made.path, out=tmp_path / "run", **options)
    pooling = options.get("pooling", "mean")
    assert run.layers == (0, 2, 3) and run.info["pooling"] == [pooling]
    for layer in run.layers:
        np.testing.assert_allclose(
            run.pooled(layer),
            whole.pooled(layer, pooling=pooling),
            rtol=1e-5,
            atol=1e-6,
        )
    assert run.info["model"]["whole"] and len(run.metric("knn_probe")) == 3


def test_a_killed_run_goes_on_and_other_states_are_refused(gpt2, tmp_path):
    run = profiled(gpt2, "all", tmp_path / "run")
    table = run.table()
    for path in [
        *run.path.glob("shards/00001*"),
        run.path / "tables" / "pooled.parquet",
    ]:
        path.unlink()
    pd.testing.assert_frame_equal(
        profiled(gpt2, "all", tmp_path / "run").table(), table
    )
    with refused("holds another run"):
        profiled(gpt2, "some", tmp_path / "run", layers=[1, 3])


@pytest.mark.parametrize("shape", [(5, 2, 8), (3, 1, 8)])
def test_a_request_of_other_tokens_or_layers_is_named_with_its_own_numbers(
    tmp_path, shape
):
    for name, own in (("a", (3, 2, 8)), ("b", shape)):
        save_file(
            {"token_ids": torch.arange(3), "hidden_states": torch.zeros(own)},
            tmp_path / f"{name}.safetensors",
        )
    with refused() as error:
        open_states(tmp_path, [0, 1])
    assert f"b.safetensors: hidden_states is {list(shape)} beside 3 token_ids" in str(
        error.value
    )

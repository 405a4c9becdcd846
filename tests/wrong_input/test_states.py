"""Models that give NaN or infinity: told with model, layer and sample, counted, and never averaged."""

import shutil

import pandas as pd
import pytest
from safetensors.torch import load_file, save_file

import layerscope

NAN, INF = float("nan"), float("inf")


def poisoned(model, folder, change):
    """Return a copy of a saved model with some weights changed."""
    shutil.copytree(model, folder)
    weights = load_file(folder / "model.safetensors")
    change(weights)
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    return folder


def everything(weights):
    for tensor in weights.values():
        tensor.fill_(NAN)


HOPELESS = {
    "everything": ("bert", everything, 0),
    "one number": (
        "bert",
        lambda w: w["bert.encoder.layer.2.output.LayerNorm.bias"][3].fill_(NAN),
        3,
    ),
    "a causal model": (
        "gpt2",
        lambda w: w["transformer.h.1.mlp.c_proj.bias"][0].fill_(INF),
        2,
    ),
}


@pytest.mark.parametrize("name", HOPELESS)
def test_a_model_that_is_broken_for_every_sample(cli, request, reviews, tmp_path, name):
    base, change, layer = HOPELESS[name]
    model = poisoned(request.getfixturevalue(base), tmp_path / "broken", change)
    # the longest is computed first
    first = pd.read_csv(reviews)["text"].str.split().str.len().idxmax()
    line = (
        f"layer {layer} of broken gives NaN or infinity for every sample (first: {first}): "
        "try --dtype float32, or check the weights"
    )
    for _ in range(2):  # the second time from the run folder
        printed = cli("profile", model, "--data", reviews, "--out", tmp_path / "run")
        assert (printed.status, printed.out, printed.line) == (2, "", line)
    assert not list((tmp_path / "run" / "tables").iterdir()), "nothing is averaged"


def test_a_broken_final_norm_may_be_left_out(
    refusal, unprofiled, cli, gpt2, reviews, tmp_path
):
    def one_number(weights):
        weights["transformer.ln_f.bias"][0].fill_(NAN)

    model = poisoned(gpt2, tmp_path / "broken", one_number)
    line = (
        "the final norm (transformer.ln_f) gives NaN or infinity for the sample of the probe: "
        "check its weights, or leave it out with --norm none"
    )
    assert unprofiled(model, reviews) == refusal("inspect", model) == line
    words = ("--data", reviews, "--out", tmp_path / "run", "--norm", "none")
    assert cli("profile", model, *words).status == 0
    assert layerscope.open_run(tmp_path / "run").table()["value"].notna().all()

"""Planted idle blocks and late writers are found, and whole runs of `causal_depth` equal code of the test's own."""

import pytest
import tiny
import torch
from models import zoo
from profiling.watched import CAUSAL, blocks_of, close, finding, measured, writes_of
from torch import cosine_similarity as cosine


def attentive(make):
    """Return a model whose tokens read much of each other."""
    model = make()
    with torch.no_grad():
        for block in blocks_of(model):
            writes_of(block)[0].weight.mul_(8.0)
    return model


def silence(module):
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.zero_()


@pytest.mark.parametrize("make", CAUSAL)
def test_a_planted_idle_block_is_found(make, tmp_path):
    model = make()
    for module in writes_of(blocks_of(model)[1]):
        silence(module)
    run = measured(model, tmp_path / "run", "causal_depth")
    said = finding(run, "causal_depth")
    assert said["idle"] == "2" and said["value"] < 2.01
    assert "without block 2 the prediction stays the same: idle" in said["text"]
    top = int(run.metric("skip_prediction", variant="same token").idxmax())
    assert f"without block {top} the prediction changes most" in said["text"]
    whole = finding(
        measured(make(), tmp_path / "whole", "causal_depth"), "causal_depth"
    )
    assert "idle" not in whole and 1 <= whole["value"] <= 3 and whole["stderr"] > 0


@pytest.mark.parametrize("make", CAUSAL)
def test_planted_late_writers_are_found(make, tmp_path):
    model = attentive(make)
    silence(writes_of(blocks_of(model)[2])[0])  # no token reads what block 2 wrote
    run = measured(model, tmp_path / "run", "causal_depth")
    assert finding(run, "causal_depth")["late_from"] == 2
    future = run.metric("skip_prediction", variant="future tokens")
    assert future[1] > 1e-3 and abs(future[2]) < 1e-6
    assert run.metric("skip_prediction", variant="same token").min() > 1e-3
    other = measured(attentive(make), tmp_path / "other", "causal_depth")
    assert "late_from" not in finding(other, "causal_depth")


def test_skips_cost_half_a_forward_each(tmp_path):
    model = zoo.seeded("GPT2LMHeadModel", 8, n_embd=16)
    ran = []
    for block in model.transformer.h:
        block.register_forward_pre_hook(lambda _, args: ran.append(args[0].shape[0]))
    texts = [" ".join(tiny.WORDS[i : i + 10]) for i in range(12)]
    measured(model, tmp_path / "run", "causal_depth", data=texts)
    assert ran.count(12) / 8 <= 8 / 2 + 2


def test_causal_depth_equals_forwards_with_a_block_hooked_out(
    both,
):
    run, texts = both
    sides = ["same token"]
    if run.info["model"]["language_model"]:
        sides.append("future tokens")
    for side in sides:
        predictions, later = zip(*(text.skips(side) for text in texts), strict=True)
        close(run, "skip_prediction", side, predictions)
        close(run, "skip_later", side, later)
        if side == "same token":
            depths = [[c.sum() ** 2 / (c**2).sum()] for c in predictions]
            close(run, "causal_depth", None, depths)
    streams = [text.stream for text in texts]
    cosines = [cosine(s.diff(dim=0), s[:-1], dim=-1).mean(-1) for s in streams]
    close(run, "branch_cosine", "block", cosines)


def test_branches_are_those_of_the_modules(tmp_path):
    model, ids, read, wrote = tiny.llama().double(), [5, 9, 20, 33, 41, 7], {}, {}
    block = model.model.layers[1]
    for name in ("self_attn", "mlp", "post_attention_layernorm"):

        def keep(_, args, output, name=name):
            read[name] = args[0][0] if args else None
            wrote[name] = (output[0] if isinstance(output, tuple) else output)[0]

        block.get_submodule(name).register_forward_hook(keep)
    run = measured(model, tmp_path / "run", "causal_depth", data=[ids, ids])
    with torch.no_grad():
        model(input_ids=torch.tensor([ids]))
    between = read["post_attention_layernorm"]
    start = between - wrote["self_attn"]
    for site, branch, stream in (
        ("attn", wrote["self_attn"], start),
        ("mlp", wrote["mlp"], between),
    ):
        ratio = branch.norm(dim=1) / stream.norm(dim=1)
        for metric, values in (
            ("branch_cosine", cosine(branch, stream)),
            ("branch_norm", ratio),
        ):
            value = run.metric(metric, variant=site)[2]
            assert value == pytest.approx(float(values.mean()), abs=1e-6)

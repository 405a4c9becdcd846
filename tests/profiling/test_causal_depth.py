"""Planted idle blocks and late writers are found, and whole runs of `causal_depth` equal code of the test's own."""

import numpy as np
import pytest
import tiny
import torch
from models import zoo
from profiling.watched import CAUSAL, blocks_of, close, finding, measured, writes_of


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
        skips = [text.skips(side) for text in texts]
        close(run, "skip_prediction", side, [prediction for prediction, _ in skips])
        close(run, "skip_later", side, [later for _, later in skips])
    changes = [text.skips("same token")[0] for text in texts]
    depths = [np.array([c.sum() ** 2 / (c**2).sum()]) for c in changes]
    close(run, "causal_depth", None, depths)
    cosines = []
    for text in texts:
        pairs = zip(text.stream, text.stream[1:], strict=False)
        cosines.append(
            np.array(
                [torch.cosine_similarity(b - a, a, dim=1).mean() for a, b in pairs]
            )
        )
    close(run, "branch_cosine", "block", cosines)


def test_branches_are_those_of_the_modules(tmp_path):
    model = tiny.llama().double()
    ids = [5, 9, 20, 33, 41, 7]
    seen = {}
    block = model.model.layers[1]
    for name in ("self_attn", "mlp", "post_attention_layernorm"):
        module = block.get_submodule(name)

        def keep(_, args, output, name=name):
            seen[name] = (output[0] if isinstance(output, tuple) else output).clone()
            if args:
                seen[f"{name} reads"] = args[0].clone()

        module.register_forward_hook(keep)
    with torch.no_grad():
        model(input_ids=torch.tensor([ids]))
    expected = dict(seen)
    run = measured(model, tmp_path / "run", "causal_depth", data=[ids, ids])
    mlp, stream = expected["mlp"][0], expected["post_attention_layernorm reads"][0]
    cosine = torch.cosine_similarity(mlp, stream, dim=1).mean()
    ratio = (mlp.norm(dim=1) / stream.norm(dim=1)).mean()
    assert run.metric("branch_cosine", variant="mlp")[2] == pytest.approx(
        float(cosine), abs=1e-6
    )
    assert run.metric("branch_norm", variant="mlp")[2] == pytest.approx(
        float(ratio), abs=1e-6
    )
    stream = stream - expected["self_attn"][0]
    cosine = torch.cosine_similarity(expected["self_attn"][0], stream, dim=1).mean()
    assert run.metric("branch_cosine", variant="attn")[2] == pytest.approx(
        float(cosine), abs=1e-6
    )

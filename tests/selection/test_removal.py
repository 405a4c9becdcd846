"""Which blocks matter least: planted blocks that do nothing, and every number against a float64 walk of its own."""

import json

import numpy as np
import pandas as pd
import pytest
import tiny
import torch
import transformers as hf
from frames import scored
from models import zoo
from torch import nn
from typed import refused

import layerscope
from layerscope.scores import Evaluation
from layerscope.selection import Removal, block_drop
from layerscope.selection.removal import open_removal

TEXTS = list(dict.fromkeys(tiny.texts(24, longest=9)))
IDLE = 2
"""The block of every model here that hardly does anything."""


def deeper(make, config, **options):
    """Return a model of five blocks, the second of which adds almost nothing."""
    model = tiny.seeded(
        make,
        config(
            **tiny.COMMON | {"num_hidden_layers": 5},
            max_position_embeddings=64,
            **options,
        ),
    )
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if f"layers.{IDLE - 1}." in name and (
                "o_proj" in name or "down_proj" in name
            ):
                weight.mul_(1e-3)
    return model


def llama():
    return deeper(hf.LlamaForCausalLM, hf.LlamaConfig, num_key_value_heads=2)


def classifier():
    options = {"num_key_value_heads": 2, "num_labels": 4}
    return deeper(hf.LlamaForSequenceClassification, hf.LlamaConfig, **options)


def encoder():
    return deeper(hf.LlamaModel, hf.LlamaConfig, num_key_value_heads=2)


def run_of(model, folder):
    path = tiny.saved(model, folder / "model", special=False)
    pd.DataFrame({"text": TEXTS}).to_csv(folder / "texts.csv", index=False)
    return layerscope.profile(
        str(path),
        str(folder / "texts.csv"),
        out=folder / "run",
        metrics="curvature",
    )


def halves(fewest):
    """The texts of so many words that choose, and those that judge: half each of a permutation by the seed."""
    order = [TEXTS[i] for i in np.random.default_rng(0).permutation(len(TEXTS))]
    order = [text for text in order if len(text.split()) >= fewest]
    return order[: len(order) // 2], order[len(order) // 2 :]


def ids_of(text):
    return tiny.tokenizer(special=False)(text, return_tensors="pt")["input_ids"]


def given(model, text, drop):
    """Walk through a Llama in float64 without some blocks; return its normed states and those of every layer, raw."""
    core = model.model if hasattr(model, "model") else model
    state = core.embed_tokens(ids_of(text))
    rotation = core.rotary_emb(state, torch.arange(state.shape[1])[None])
    raw = [state]
    for number, block in enumerate(core.layers, 1):
        if number not in drop:
            state = block(state, attention_mask=None, position_embeddings=rotation)
        raw.append(state)
    return core.norm(raw[-1]), raw


def reference(model, kind, texts, drop):
    """Return cost, its standard error and what is left, text by text."""
    costs, scores = [], []
    for text in texts:
        own, full = (given(model, text, blocks)[0] for blocks in (drop, ()))
        if kind == "tokens":
            truth = ids_of(text)[0, 1:]
            nll = [
                nn.functional.cross_entropy(model.lm_head(states)[0, :-1], truth)
                for states in (own, full)
            ]
            costs.append(nll[0] - nll[1])
            scores.append(nll[0])
        elif kind == "pooled":
            cut, whole = (
                model.score(states)[0, -1].softmax(-1) for states in (own, full)
            )
            costs.append((whole * (whole / cut).log()).sum())
            scores.append(float(whole.argmax() == cut.argmax()))
        else:
            cosine = nn.functional.cosine_similarity(
                own[0].mean(0), full[0].mean(0), dim=0
            )
            costs.append(1 - cosine)
            scores.append(cosine)
    costs = np.array([float(cost) for cost in costs])
    return (
        costs.mean(),
        costs.std(ddof=1) / len(costs) ** 0.5,
        float(np.mean([float(score) for score in scores])),
    )


@pytest.mark.parametrize(
    "make, kind",
    [(llama, "tokens"), (classifier, "pooled"), (encoder, "vectors")],
    ids=["lm", "classifier", "encoder"],
)
@torch.no_grad()
def test_every_number_against_a_walk_of_its_own(make, kind, tmp_path):
    found = layerscope.select(run_of(make(), tmp_path), drop=2)
    assert isinstance(found, Removal) and found.measure == kind and found.depth == 5
    model, (choosing, judging) = make().double(), halves(2 if kind == "tokens" else 1)
    assert (found.chosen_on, found.judged_on) == (len(choosing), len(judging))
    influence = []
    for text in choosing:
        raw = given(model, text, ())[1]
        pairs = zip(raw, raw[1:], strict=False)
        cosines = [nn.functional.cosine_similarity(a, b, dim=-1)[0] for a, b in pairs]
        influence.append(torch.stack(cosines))
    wanted = 1 - torch.cat(influence, 1).mean(1)
    np.testing.assert_allclose(found.influence, wanted.numpy(), rtol=1e-4, atol=1e-5)
    by_way = {choice.way: choice for choice in found.choices}
    assert by_way["the last blocks"].blocks == (4, 5)
    assert by_way["block influence"].blocks == tuple(
        sorted(np.argsort(wanted.numpy())[:2] + 1)
    )
    first = min(
        range(1, 6), key=lambda block: reference(model, kind, choosing, (block,))[0]
    )
    pairs = [tuple(sorted((first, block))) for block in range(1, 6) if block != first]
    assert by_way["greedy removal"].blocks == min(
        pairs, key=lambda pair: reference(model, kind, choosing, pair)[0]
    )
    for choice in found.choices:
        wanted = reference(model, kind, judging, choice.blocks)
        np.testing.assert_allclose(
            (choice.cost, choice.stderr, choice.score), wanted, rtol=1e-3, atol=1e-5
        )
        np.testing.assert_allclose(
            choice.chosen_on,
            reference(model, kind, choosing, choice.blocks)[0],
            rtol=1e-3,
            atol=1e-5,
        )
    assert found.choices[0].chosen_on == min(
        choice.chosen_on for choice in found.choices
    )


def test_the_block_that_does_nothing_goes_first_and_the_command_ships_it(cli, tmp_path):
    run = run_of(encoder(), tmp_path)
    printed = cli("select", run.path, "--drop", 1, "--out", tmp_path / "choice")
    assert printed.status == 0, printed.err
    assert printed.out.startswith(
        f"drop block {IDLE} of 5 (greedy removal): 1 − cosine "
    )
    assert (
        f"layerscope truncate {run.path} --drop {IDLE} --out model-without-{IDLE}"
        in printed.out.replace("\n", " ")
    )
    assert "--out model-without-2 --heal DATA" in printed.out.replace("\n", " ")
    found = open_removal(tmp_path / "choice")
    assert "Ways to choose" in (tmp_path / "choice" / "report.html").read_text()
    assert found.blocks == (IDLE,)
    printed = cli("select", run.path, "--drop", 1, "--json")
    assert (
        json.loads(printed.out)["blocks"] == [IDLE]
        and json.loads(printed.out)["choices"][0]["way"]
    )
    again = layerscope.select(run, drop=1)
    assert again.as_dict() == found.as_dict() and again.document() == found.document()
    assert (
        cli("report", tmp_path / "choice", "--out", tmp_path / "page.html").status == 0
    )
    assert (
        f"without block {IDLE} of 5"
        in cli("truncate", tmp_path / "choice", "--out", tmp_path / "cut").out
    )
    for choice in found.choices:
        assert choice.fault == "" and (
            choice.way == "the last blocks" or choice.blocks == (IDLE,)
        )
    assert found.choices[0].cost < 0.01 < found.choices[-1].cost


def test_other_data_choose_and_what_no_checkpoint_can_lack_is_not_recommended(tmp_path):
    torch.manual_seed(0)
    model = zoo.seeded("T5ForConditionalGeneration", d_ff=48, d_kv=8)
    folder = tiny.saved(model, tmp_path / "t5")
    run = layerscope.profile(
        str(folder),
        TEXTS[:12],
        part="encoder",
        out=tmp_path / "run",
        metrics="curvature",
    )
    with refused("cannot be found: name them with `data`"):
        layerscope.select(run, drop=1)
    pd.DataFrame({"text": TEXTS}).to_csv(tmp_path / "others.csv", index=False)
    found = layerscope.select(run, drop=2, data=str(tmp_path / "others.csv"))
    assert found.data == "others" and found.blocks == (2, 3)
    faulty = [choice for choice in found.choices if 1 in choice.blocks]
    assert all("relative_attention_bias" in choice.fault for choice in faulty)
    assert all(choice.fault == "" for choice in found.choices if 1 not in choice.blocks)


@pytest.mark.parametrize(
    "options, line",
    [
        (
            ["--drop", 3],
            "drop 3 leaves none of the 3 blocks of tiny-llama: give 1 to 2",
        ),
        (
            ["--drop", 1, "--rule", "best"],
            "--rule chooses a layer, and --drop chooses blocks: leave it out",
        ),
        (
            ["--drop", 1, "--max-ms", 3],
            "--max-ms chooses a layer, and --drop chooses blocks: leave it out",
        ),
    ],
)
def test_wrong_options(options, line, refusal, labelled):
    assert refusal("select", labelled.path, *options) == line


def test_too_few_samples_shared_blocks_and_scores(labelled, tmp_path, monkeypatch):
    pd.DataFrame({"text": TEXTS[:9]}).to_csv(tmp_path / "few.csv", index=False)
    with refused(r"few has \d distinct samples: give 10 or more as `data`"):
        layerscope.select(labelled, drop=1, data=str(tmp_path / "few.csv"))
    scores = Evaluation(scored({"t": [0.1, 0.2]}))
    with refused("`drop` runs the model on the samples"):
        layerscope.select(scores, drop=1)
    model = zoo.seeded("AlbertModel", embedding_size=16)
    folder = tiny.saved(model, tmp_path / "albert")
    run = layerscope.profile(
        str(folder),
        TEXTS[:12],
        out=tmp_path / "run",
        metrics="curvature",
    )
    monkeypatch.setattr(
        block_drop,
        "_corpus",
        lambda *_: pytest.fail("it is refused before any data are read"),
    )
    with refused("is run as 3 blocks: none of them can be dropped alone"):
        layerscope.select(run, drop=1)

"""The tuned lens: translators against independent numbers, a planted rotation, kills and wrong inputs."""

import json
import pickle
import random

import numpy as np
import pandas as pd
import pytest
import tiny
import torch
from logit_lens.readers import PLAIN
from models.tokenizer import word_tokenizer
from models.zoo import t5
from safetensors.torch import load_file
from torch import nn
from typed import refused

from layerscope import lens
from layerscope.inputs import Corpus, draw
from layerscope.logit_lens import translator_training, translators
from layerscope.logit_lens.reading import open_reading
from layerscope.show.page.page import render

WEIGHTS = translators.WEIGHTS


def words(n, seed=0):
    """Return a text of n words, in lines of 40, each word likely to follow one before it."""
    rng, found = random.Random(seed), [0]
    while len(found) < n:
        found.append((found[-1] * 3 + rng.choice([1, 1, 1, 2, 7])) % 90)
    return [
        " ".join(f"w{i}" for i in found[start : start + 40])
        for start in range(0, n, 40)
    ]


TRAIN, HELD = words(4000), words(400, 1)


def tuned(model, folder, *, data=HELD, train=TRAIN, steps=20, **how):
    how = {"processor": PLAIN, "top": 2, **how}
    return lens(model, data=data, tuned=folder, train=train, steps=steps, **how)


def llama_states(model, ids):
    """Return the raw states of layers 0 … L by plain hooks, and what the model makes of states."""
    kept = []
    hooks = [
        model.model.layers[0].register_forward_pre_hook(
            lambda _, args, kw: kept.append(args[0] if args else kw["hidden_states"]),
            with_kwargs=True,
        )
    ]
    hooks += [
        each.register_forward_hook(lambda _, __, out: kept.append(out))
        for each in model.model.layers
    ]
    model(torch.tensor([ids]))
    for hook in hooks:
        hook.remove()
    states = [each[0].detach() for each in kept]
    return states, lambda h: model.lm_head(model.model.norm(h))


@torch.no_grad()
def divergence(model, weights, rows):
    """Return the mean KL by layer and lens, in float64 and straight from the definition."""
    model, sums = model.double(), 0.0
    for ids in rows:
        states, head = llama_states(model, ids)
        own = head(states[-1]).log_softmax(-1)
        found = []
        for k, state in enumerate(states[:-1]):
            moved = state @ weights[f"{k}.weight"].double().T
            moved = state + moved + weights[f"{k}.bias"].double()
            both = [head(each).log_softmax(-1) for each in (state, moved)]
            found.append([(own.exp() * (own - each)).sum() for each in both])
        sums = sums + torch.tensor(found)
    return sums / sum(map(len, rows))


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Return a reading through translators of a tiny Llama, and their folder."""
    folder = tmp_path_factory.mktemp("tuned") / "translators"
    return tuned(tiny.llama(), folder), folder


def test_the_numbers_are_those_of_the_definitions(trained):
    reading, folder = trained
    read = draw(Corpus("held", "text", HELD, HELD), 8, seed=0).samples
    rows = [PLAIN(text)["input_ids"] for text in read]
    wanted = divergence(tiny.llama(), load_file(folder / WEIGHTS), rows)
    np.testing.assert_allclose(
        reading.tuned[["kl_plain", "kl_tuned"]], wanted, rtol=1e-4, atol=1e-6
    )
    assert (
        reading.tuned["layer"].tolist() == [0, 1, 2]
        and (reading.tuned["n"] == 8 * 40).all()
    )
    assert (reading.tuned["kl_tuned"] < reading.tuned["kl_plain"]).all()
    assert any("20 steps of 1,024 tokens, 5.2 passes" in note for note in reading.notes)


def test_the_grid_is_read_through_the_translators_and_the_last_layer_is_the_models_own(
    trained,
):
    reading, folder = trained
    plain = lens(tiny.llama(), data=HELD, processor=PLAIN, top=2)
    last = [
        frame[frame["layer"] == 3].reset_index(drop=True)
        for frame in (reading.grid, plain.grid)
    ]
    pd.testing.assert_frame_equal(*last)
    weights, model = load_file(folder / WEIGHTS), tiny.llama()
    states, head = llama_states(model, PLAIN(HELD[0])["input_ids"])
    moved = states[1] + states[1] @ weights["1.weight"].T + weights["1.bias"]
    rows = reading.grid.query("layer == 1 and rank == 1")[:40]
    assert rows["id"].tolist() == head(moved).argmax(-1).tolist()
    assert plain.tuned is None and not plain.document().reasons


def test_the_first_step_is_that_of_the_paper(tmp_path):
    """One step of SGD with Nesterov's momentum on the mean KL, by automatic differentiation in float64."""
    tuned(tiny.llama(), tmp_path / "new", train=TRAIN[:26], steps=1)
    found, model = load_file(tmp_path / "new" / WEIGHTS), tiny.llama().double()
    ids = PLAIN("\n".join(TRAIN[:26]))["input_ids"]
    assert len(ids) // 64 == 16  # one step reads them all
    rows = [llama_states(model, ids[i : i + 64])[0] for i in range(0, 1024, 64)]
    for k in range(3):
        layer = nn.Linear(32, 32).double()
        for parameter in layer.parameters():
            nn.init.zeros_(parameter)
        own = torch.cat([row[-1] for row in rows])
        state = torch.cat([row[k] for row in rows])
        target, mine = (
            (model.lm_head(model.model.norm(h))).log_softmax(-1)
            for h in (own, state + layer(state))
        )
        torch.nn.functional.kl_div(
            mine, target, reduction="batchmean", log_target=True
        ).backward()
        nn.utils.clip_grad_norm_(layer.parameters(), 1.0)
        for name, parameter in layer.named_parameters():
            torch.testing.assert_close(
                found[f"{k}.{name}"].double(),
                -1.9 * parameter.grad,
                rtol=1e-3,
                atol=1e-5,
            )


@pytest.mark.parametrize(
    "make, how",
    [
        (t5, {"part": "decoder", "processor": word_tokenizer()}),
        (lambda: tiny.llama().bfloat16(), {}),
    ],
    ids=["t5", "bfloat16"],
)
def test_other_models_and_half_precision(make, how, tmp_path):
    found = tuned(make(), tmp_path / "new", steps=12, **how).tuned
    assert (found["kl_tuned"] < found["kl_plain"]).all()
    weights = load_file(tmp_path / "new" / WEIGHTS).values()
    assert {weight.dtype for weight in weights} == {torch.float32}


def test_a_killed_training_ends_with_the_same_numbers(trained, tmp_path, monkeypatch):
    training, folder = translator_training._backward, tmp_path / "killed"

    def dies(model, found, rows, step):
        if step == 17:
            raise KeyboardInterrupt
        return training(model, found, rows, step)

    monkeypatch.setattr(translator_training, "SECONDS_BETWEEN_CHECKPOINTS", 0.0)
    monkeypatch.setattr(translator_training, "_backward", dies)
    with pytest.raises(KeyboardInterrupt):
        tuned(tiny.llama(), folder)
    assert int(load_file(folder / WEIGHTS)["step"]) == 17
    with refused("was stopped: give `train` again"):
        tuned(tiny.llama(), folder, train=None)
    steps = []
    monkeypatch.setattr(
        translator_training,
        "_backward",
        lambda *args: (steps.append(args[-1]), training(*args))[1],
    )
    again = tuned(tiny.llama(), folder)
    assert steps == [*range(17, 20)]
    reading, whole = trained
    first, second = load_file(whole / WEIGHTS), load_file(folder / WEIGHTS)
    assert first.keys() == second.keys() and all(
        torch.equal(first[name], second[name]) for name in first
    )
    pd.testing.assert_frame_equal(again.tuned, reading.tuned)
    tuned(tiny.llama(), folder)  # trained already
    assert steps == [*range(17, 20)]


def test_a_reading_is_saved_opened_and_shown(trained, tmp_path):
    reading, _ = trained
    reading.save(tmp_path / "lens")
    opened = open_reading(tmp_path / "lens")
    pd.testing.assert_frame_equal(opened.tuned, reading.tuned)
    assert opened.document().reasons == reading.document().reasons
    assert "3 of the 3 layers" in reading.document().reasons[0]
    page = render([opened.document()])
    assert "How near each layer is to the model" in page and "Belrose" in page
    assert (
        json.loads(json.dumps(reading.as_dict(), allow_nan=False))["tuned"][2]["layer"]
        == 2
    )
    pickle.dumps(reading)


def test_the_command_beats_the_plain_lens_on_a_real_model(cli, shared, tmp_path):
    text = (shared / "data" / "tiny_shakespeare" / "input.txt").read_text()
    for name, part in (("train.txt", text[:200_000]), ("held.txt", text[-9_000:])):
        (tmp_path / name).write_text(part)
    model, out = shared / "models" / "stories260K", tmp_path / "out"
    options = ("--data", tmp_path / "held.txt", "--samples", 12)
    options += ("--tuned", tmp_path / "translators", "--steps", 10)
    done = cli("lens", model, *options, "--train", tmp_path / "train.txt", "--out", out)
    told = " ".join(done.out.split())
    assert done.status == 0
    assert "5 of the 5 layers before the last come nearer" in told
    assert "KL plain" in told
    found = open_reading(out).tuned
    assert (found["kl_plain"] - found["kl_tuned"]).min() > 0.1

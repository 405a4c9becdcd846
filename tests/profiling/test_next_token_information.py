"""Information about the next token by layer, against whole Grams of states that this test's own hooks have seen."""

from pathlib import Path

import numpy as np
import pytest
import tiny
from hooked import profile, walk

import layerscope
from layerscope import LayerscopeError
from layerscope.metrics.label_information import OFTEN

TEXTS = tiny.texts(90, seed=2)
METRIC = "next_token_information"


def entropy(gram: np.ndarray) -> float:
    values = np.linalg.eigvalsh(gram / np.trace(gram))
    values = values[values > 1e-14]
    return float(-(values * np.log(values)).sum())


def above_chance(states: np.ndarray, tokens: np.ndarray) -> tuple[float, float]:
    unit = states / np.linalg.norm(states, axis=1, keepdims=True)
    orders, classes = np.random.default_rng(0), np.unique(tokens, return_inverse=True)[1]
    A, found = unit @ unit.T, []
    for own in (classes, *(orders.permutation(classes) for _ in range(8))):
        B = (own[:, None] == own[None]).astype(float)
        found.append(entropy(A) + entropy(B) - entropy(A * B))
    return found[0] - np.mean(found[1:]), np.std(found[1:], ddof=1)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> layerscope.Run:
    return profile(
        tiny.gpt2(), TEXTS, tmp_path_factory.mktemp("next") / "run", metrics=METRIC, lens_tokens=700
    )


@pytest.mark.parametrize("layer", [0, 2, 3])
def test_it_is_that_of_the_states_before_frequent_tokens(run: layerscope.Run, layer: int) -> None:
    model, tokenizer = tiny.gpt2(), tiny.tokenizer(special=False)
    states, after, before = [], [], []
    for text, positions in zip(run.folder.plan["sample"], run.folder.plan["next"], strict=True):
        ids = tokenizer(TEXTS[text])["input_ids"]
        seen = (
            model.transformer.ln_f(walk(model, TEXTS[text])[0][layer])
            .detach()
            .numpy()
            .astype(float)
        )
        states += [seen[position] for position in positions]
        after += [ids[position + 1] for position in positions]
        before += [ids[position] for position in positions]
    assert len(after) == 700
    frequent = np.bincount(after)[after] >= OFTEN
    value, spread = above_chance(np.array(states)[frequent], np.array(after)[frequent])
    row = run.table().query(f"metric == '{METRIC}' and layer == {layer}").iloc[0]
    assert (row["value"], row["stderr"]) == pytest.approx((value, spread), abs=2e-6)
    assert (row["n"], row["n_skipped"], row["site"]) == (
        frequent.sum(),
        700 - frequent.sum(),
        "normed",
    )
    # the token read, not the next
    wrong, _ = above_chance(np.array(states)[frequent], np.array(before)[frequent])
    assert abs(wrong - value) > 0.05


def test_what_states_know_exceeds_chance_by_far_and_random_texts_do_not(tmp_path: Path) -> None:
    words = [f"w{i}" for i in range(8)]
    # each word tells the next
    cycle = [" ".join((words * 4)[i % 8 : i % 8 + 3 + i % 13]) for i in range(90)]
    known = profile(tiny.gpt2(), cycle, tmp_path / "known", metrics=METRIC, samples="all").metric(
        METRIC
    )
    rng = np.random.default_rng(0)
    noise = [" ".join(rng.choice(words, 6)) for _ in range(90)]
    table = (
        profile(tiny.gpt2(), noise, tmp_path / "noise", metrics=METRIC)
        .table()
        .query(f"metric == '{METRIC}'")
    )
    assert known[0] > 0.5
    assert (table["value"].abs() < 4 * table["stderr"]).all()


def test_it_is_told_where_it_does_not_apply(tmp_path: Path) -> None:
    with pytest.raises(
        LayerscopeError,
        match="next_token_information is not measured: .* does not predict the next",
    ):
        profile(tiny.classifier(), TEXTS, tmp_path / "run", metrics=METRIC)
    few = profile(tiny.gpt2(), ["w1 w2", "w3 w4"], tmp_path / "few", metrics=f"{METRIC},perplexity")
    assert METRIC not in set(few.table()["metric"])  # no next token is seen often enough

"""Text by depth and how good it is: against references of its own, saved and opened, drawn, and refused in one line."""

import json
import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from generation.talkers import TOKENIZER, loud, prompts
from models import zoo
from models.tokenizer import words
from typed import refused

import layerscope
from layerscope import generate, open_generation
from layerscope.models import LoadOptions, load

QUIET = {"processor": TOKENIZER}
TEXTS = prompts((9, 14, 6, 20))


@pytest.fixture(scope="module")
def model():
    return loud(zoo.llama())


@pytest.fixture(scope="module")
def measured(model):
    return generate(
        model,
        data=TEXTS,
        layers="all",
        prefix=5,
        max_new_tokens=12,
        top_p=0.9,
        measure=True,
        **QUIET,
    )


def rep(tokens, n):
    """Return the share of n-grams that repeat an earlier one, as Su et al. define it."""
    counts = Counter(tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1))
    return 1 - len(counts) / sum(counts.values())


def test_diversity_is_the_product_over_the_field_s_rep_n(measured):
    for layer, own in measured.texts.groupby("layer"):
        wanted = [
            math.prod(1 - rep(list(ids), n) for n in (2, 3, 4))
            for ids in own["ids"]
            if len(ids) >= 4
        ]
        assert own["diversity"].dropna().tolist() == pytest.approx(wanted, rel=1e-12)
        assert measured.measure("diversity")[layer] == pytest.approx(
            np.mean(wanted), rel=1e-12
        )
        row = measured.measures.query(
            f"layer == {layer} and measure == 'diversity'"
        ).iloc[0]
        assert row["n"] == len(wanted)
        assert row["stderr"] == pytest.approx(
            np.std(wanted, ddof=1) / math.sqrt(len(wanted)), rel=1e-9
        )


def test_coherence_is_the_cosine_by_the_sentence_encoder(measured):
    encoder = load("minilm", LoadOptions()).served
    own = measured.texts
    first, second = (
        encoder.encode(own[name].tolist()).astype(np.float64)
        for name in ("prompt", "text")
    )
    wanted = (
        (first * second).sum(1)
        / np.linalg.norm(first, axis=1)
        / np.linalg.norm(second, axis=1)
    )
    np.testing.assert_allclose(own["coherence"], wanted, atol=1e-6)
    np.testing.assert_allclose(
        measured.measure("coherence"), wanted.reshape(3, -1).mean(1), atol=1e-6
    )


@torch.no_grad()
def test_accuracy_and_perplexity_are_of_every_token_of_the_given_texts(model, measured):
    losses, hits = [], []
    for text in TEXTS:
        ids = torch.tensor([[int(word[1:]) for word in text.split()]])
        logits = model(ids, use_cache=False).logits[0, :-1].double()
        losses.append(
            torch.nn.functional.cross_entropy(
                logits, ids[0, 1:], reduction="none"
            ).numpy()
        )
        hits.append((logits.argmax(-1) == ids[0, 1:]).numpy().astype(float))
    last = measured.measures[measured.measures["layer"] == 3].set_index("measure")
    assert last["n"]["accuracy"] == 8 + 13 + 5 + 19
    assert last["value"]["accuracy"] == np.concatenate(hits).mean()
    assert last["value"]["perplexity"] == pytest.approx(
        math.exp(np.concatenate(losses).mean()), rel=1e-4
    )
    # the standard error of a ratio of sums, by leaving out one text at a time
    sums, sizes = (
        np.array([[h.sum(), x.sum()] for h, x in zip(hits, losses, strict=True)]),
        np.array([8, 13, 5, 19]),
    )
    ratio = sums.sum(0) / sizes.sum()
    wanted = (
        np.sqrt(4 / 3 * ((sums - ratio * sizes[:, None]) ** 2).sum(0)) / sizes.sum()
    )
    assert last["stderr"]["accuracy"] == pytest.approx(wanted[0], rel=1e-9)
    assert last["stderr"]["perplexity"] == pytest.approx(
        wanted[1] * math.exp(ratio[1]), rel=1e-4
    )


def test_prompts_are_the_beginnings_and_every_layer_draws_the_same_lots(
    model, measured
):
    for layer in (1, 3):
        alone = generate(
            model,
            [" ".join(text.split()[:5]) for text in TEXTS],
            layers=layer,
            max_new_tokens=12,
            top_p=0.9,
            **QUIET,
        )
        own = measured.texts[measured.texts["layer"] == layer]
        assert own["prompt"].tolist() == alone.texts["prompt"].tolist()
        assert own["ids"].tolist() == alone.texts["ids"].tolist()
        assert alone.measures.empty and alone.texts["coherence"].isna().all()


def test_what_is_saved_opens_again_and_is_shown(measured, tmp_path):
    again = open_generation(measured.save(tmp_path / "depths"))
    assert again.texts.equals(measured.texts) and again.measures.equals(
        measured.measures
    )
    assert again.as_dict() == measured.as_dict() and again.sampling == measured.sampling
    page = layerscope.report(tmp_path / "depths").read_text(encoding="utf-8")
    assert all(
        f"generated_{name}" in page or name.capitalize() in page
        for name in ("accuracy", "diversity")
    )
    (tmp_path / "depths" / "texts.parquet").write_bytes(b"no")
    with refused("has changed since it was written: run layerscope generate again"):
        open_generation(tmp_path / "depths")


def test_a_text_of_one_token_is_left_out_and_noted(model):
    left_out = "1 text of a single token left out"
    for data, notes in ((["w3 w4"], ()), (["w3 w4", "w3"], (left_out,))):
        run = generate(model, data=data, prefix=1, max_new_tokens=1, **QUIET)
        assert run.notes == notes and run.texts["prompt"].tolist() == ["w3"]


def test_a_text_without_a_word_or_four_tokens_has_no_measure():
    model = loud(zoo.llama())
    first = generate(model, "w3 w4 w5", max_new_tokens=1, **QUIET).texts["ids"][0]
    model.generation_config.eos_token_id = first[0]
    found = generate(model, "w3 w4 w5", max_new_tokens=8, measure=True, **QUIET)
    assert (
        found.texts["diversity"].isna().all()
        and found.measure("diversity").isna().all()
    )
    assert found.measures.set_index("measure")["n"]["diversity"] == 0
    json.dumps(found.as_dict(), allow_nan=False)
    assert found.document().parts


def test_the_command_on_the_real_model(cli, shared, tmp_path):
    data, out = tmp_path / "stories.txt", tmp_path / "depths"
    data.write_text(
        "Once upon a time, there was a little girl named Lily. She loved to play outside.\n"
        * 40
    )
    done = cli(
        *(
            f"generate {shared}/models/stories260K --data {data} --layers 2,5 "
            "--measure --samples 4 --max-length 64 --prefix 16 --max-new-tokens 16 "
            f"--top-p 0.95 --out {out} --json"
        ).split(),
    )
    assert done.status == 0, done.err
    found = json.loads(done.out)
    values = {(row["layer"], row["measure"]): row["value"] for row in found["measures"]}
    assert (
        values[5, "accuracy"] > values[2, "accuracy"]
        and values[5, "perplexity"] < values[2, "perplexity"]
    )
    assert found["layers"] == [2, 5] and Path(found["pages"][0]).is_file()


def test_texts_alone_have_a_page(cli, shared, tmp_path):
    model, out = shared / "models" / "stories260K", tmp_path / "texts"
    done = cli(
        *f"generate {model} --prompt Once --prompt Tom --max-new-tokens 5 --out {out}".split(),
    )
    assert done.status == 0 and "2 texts continued at layer 5 of 5" in done.out, (
        done.err
    )
    assert "What each depth writes" in (out / "report.html").read_text(encoding="utf-8")


REFUSED = [
    (
        {"prompt": "w3", "data": ["w3 w4"]},
        "generate needs texts to continue: give either a prompt or data",
    ),
    (
        {"data": np.zeros((3, 4))},
        "tensor holds tensor samples: a language model continues texts",
    ),
    (
        {"data": ["w3", "w4"]},
        "texts holds no text of two tokens: there is nothing to predict",
    ),
    ({"prompt": []}, "prompts are a list of texts: give one or more strings in a list"),
    ({"prompt": ["w3", 4]}, "prompts are a list of texts"),
    (
        {"prompt": ["w3", ""]},
        r"prompt 1 \(''\) has no token, and the tokenizer has none that begins a text",
    ),
    (
        {"prompt": ["w3", words([5] * 70)], "max_new_tokens": 24},
        "prompt 1 has 70 tokens, and 24 new ones follow: the model has 64 positions, shorten it$",
    ),
    (
        {"prompt": ["w3", words([5] * 60)], "max_new_tokens": 24},
        "prompt 1 has 60 tokens.*: the model has 64 positions, shorten it, or try `max_new_tokens=4`$",
    ),
    ({"prompt": "w3 w4", "layers": 0}, "layer 0 is what the first block reads"),
    (
        {"prompt": "w3 w4", "layers": 9},
        r"layer 9 does not exist: this model has layers 0\.\.3",
    ),
    (
        {"prompt": "w3 w4", "measure": True, "max_new_tokens": 3},
        "`max_new_tokens=3` is too short for diversity, which counts 4-grams: give at least 4",
    ),
    (
        {"prompt": "w3", "measure": True, "max_new_tokens": 8},
        "text 0 has one token, and nothing to predict: leave it out",
    ),
]


@pytest.mark.parametrize("wrong, line", REFUSED)
def test_wrong_input_is_refused_in_one_line(wrong, line, model):
    with refused(f"^{line}"):
        generate(model, **QUIET | wrong)


def test_a_folder_that_holds_something_else_is_refused_before_the_work(model, tmp_path):
    (tmp_path / "mine.txt").write_text(words([3]))
    with refused("exists and holds no set of generated texts: name a new folder"):
        generate(model, "w3 w4", out=tmp_path, **QUIET)

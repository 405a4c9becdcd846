"""Probes of words: first tokens against word ids, whole sentences held out, an interval that knows of sentences."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import tiny
import torch
import transformers as hf
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedGroupKFold
from sklearn.preprocessing import normalize
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from typed import refused

import layerscope
from layerscope.inputs.tagged import first_tokens, read_tagged
from layerscope.probes import token_probe


def sentences(n):
    """Words and tags: a tag is the word's number by 3; some words are two joined by a dash, three tokens."""
    words = [
        [f"{w}-w1" if i % 4 == 3 else w for i, w in enumerate(t.split())]
        for t in tiny.texts(n, longest=12)
    ]
    return words, [["abc"[int(w[1:].split("-")[0]) % 3] for w in row] for row in words]


def written(path, words, tags):
    path.write_text(
        "\n".join(
            json.dumps({"tokens": w, "tags": t})
            for w, t in zip(words, tags, strict=True)
        )
    )
    return str(path)


def test_every_layer_reads_the_first_token_of_each_word(bert, tmp_path):
    words, tags = sentences(60)
    tags[7][0] = tags[8][0] = "rare"
    task = f"token-probe:{written(tmp_path / 'pos.jsonl', words, tags)}"
    found = layerscope.evaluate(bert, task, tmp_path / "out")
    module, tokenizer = (
        hf.BertForMaskedLM.from_pretrained(bert).eval(),
        hf.AutoTokenizer.from_pretrained(bert),
    )
    layers, flat, groups = [], [], []
    for number in sorted(
        range(60), key=lambda i: (-len(tokenizer(" ".join(words[i])).input_ids), i)
    ):
        read = tokenizer(words[number], is_split_into_words=True, return_tensors="pt")
        first = [read.word_ids().index(i) for i in range(len(words[number]))]
        with torch.no_grad():
            layers.append(
                torch.stack(module(**read, output_hidden_states=True).hidden_states)[
                    :, 0, first
                ]
            )
        flat += tags[number]
        groups += [number] * len(first)
    states, kept = torch.cat(layers, 1).numpy(), np.array(flat) != "rare"
    for layer in (0, 2, 3):
        own = token_probe(
            states[layer][kept], np.array(flat)[kept], np.array(groups)[kept]
        ).mean
        assert found.table().loc[layer, "pos (token probe)"] == pytest.approx(
            own, abs=0.01
        )
    assert (found.scores["n"] == kept.sum()).all() and kept.sum() == len(flat) - 2
    assert found.baseline().iloc[0, 0] == found.table().loc[3].item()
    assert found.table().iloc[0, 0] > 0.5  # a third by chance


def test_causal_models_and_cut_sentences(tmp_path):
    words, tags = sentences(40)
    words[0], tags[0] = ["w3"] * 100, ["a"] * 100  # the tokenizer takes 64
    task = f"token-probe:{written(tmp_path / 'pos.jsonl', words, tags)}"
    folder = str(tiny.saved(tiny.broken_llama("w7"), tmp_path / "llama"))
    found = layerscope.evaluate(folder, task, layers=[0, 3], sites="raw,normed")
    sound = [row for row in words if not {"w7", "w7-w1"} & {*row}]
    assert len(sound) < 40, "sentences with NaN are left out, from the embeddings on"
    assert (found.scores["n"] == sum(map(len, sound)) - 36).all()
    assert found.table(site="raw").shape == found.table(site="normed").shape == (2, 1)


def test_the_interval_holds_sentences_together():
    rng = np.random.default_rng(0)
    # the words of a sentence are easy or hard together
    hard = np.repeat(rng.random(80) < 0.5, 10)
    labels, groups = rng.integers(0, 2, 800), np.repeat(np.arange(80), 10)
    states = rng.standard_normal((800, 6)) + np.where(hard, 0, 6)[:, None] * (
        labels[:, None] - 0.5
    )
    found = token_probe(states, labels, groups)
    right = own_right(states, labels, groups)
    assert found.mean == pytest.approx(right.mean(), abs=0.01)
    drawn = [right.reshape(80, 10)[rng.integers(0, 80, 80)].mean() for _ in range(4000)]
    assert found.stderr == pytest.approx(np.std(drawn), rel=0.1)
    assert [found.low, found.high] == pytest.approx(
        np.quantile(drawn, [0.025, 0.975]), abs=0.015
    )
    assert token_probe(states, labels, groups, folds=3).n == 800
    assert found.stderr > 1.3 * np.sqrt(found.mean * (1 - found.mean) / 800)
    perfect = token_probe(labels[:, None] * np.ones(3) + [[0, 1, 2]], labels, groups)
    assert perfect.mean == perfect.high == 1 and perfect.low == pytest.approx(
        1 / (1 + 1.96**2 / 80), abs=1e-4
    )


def own_right(states, labels, groups):
    rows, right = normalize(states), np.zeros(len(labels))
    for train, test in StratifiedGroupKFold(5, shuffle=True, random_state=0).split(
        rows, labels, groups
    ):
        right[test] = (
            LogisticRegression().fit(rows[train], labels[train]).predict(rows[test])
            == labels[test]
        )
    return right


def test_first_tokens_of_a_tokenizer_that_takes_the_blank_along():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=330, initial_alphabet=alphabet, special_tokens=["<s>"]
    )
    corpus = ["the tree stands beside the house", "houses and trees, naïve as ever"]
    tokenizer.train_from_iterator(corpus * 3, trainer)
    fast = hf.PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=64)
    words = ["naïve", "trees", "stands", ",", "houses"]
    ((window, places),) = first_tokens(
        SimpleNamespace(tokenizer=fast, max_length=64), [words], "m"
    )
    assert places == sorted(places) and len(set(places)) == 5
    ends = [*places[1:], len(window.ids)]
    assert [
        fast.decode(window.ids[i:j]).strip() for i, j in zip(places, ends, strict=True)
    ] == words


@pytest.mark.parametrize(
    "rows, line",
    [
        (
            [{"tokens": ["a", "b"], "tags": ["X"]}],
            "{}: row 0 has 2 tokens and 1 labels: give one for each",
        ),
        (
            [{"tokens": ["a", "b"], "tags": ["X", "Y"]}] * 4,
            "pos: fewer than 2 labels occur in 5 sentences: give more sentences",
        ),
    ],
)
def test_wrong_files(tmp_path, rows, line):
    path = tmp_path / "pos.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    with refused() as caught:
        read_tagged(str(path), None, 0)
    assert str(caught.value) == line.format(path)

"""How depth is used along a text: against a plain loop in float64, and by marks and thirds that are planted."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import tiny
import torch
import transformers as hf
from logit_lens.readers import PLAIN, SPECIAL
from models.tokenizer import word_tokenizer
from tokenizers import Tokenizer
from typed import refused

from layerscope import generate, lens
from layerscope.logit_lens.along_text import findings, phases, settling, thirds
from layerscope.logit_lens.reading import open_reading
from layerscope.reports.results import opened

PROMPTS = ["w1 w2 w3", "w9 w4", "w5 w6 w7 w8"]
NEW = 13


def stories(shared):
    folder = shared / "models" / "stories260K"
    model = hf.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64)
    texts = ["Once upon a time", "Tom and his dog", "The sun"]
    return model, hf.AutoTokenizer.from_pretrained(folder), texts, model.model.norm


def small_gpt2(shared):
    model = tiny.gpt2().double()
    return model, PLAIN, PROMPTS, model.transformer.ln_f


@torch.no_grad()
def by_a_plain_loop(model, tokenizer, text, norm):
    """Return for each new token its id, the layer at which it settles, and every layer's entropy, from one forward."""
    prompt = tokenizer(text)["input_ids"]
    ids = list(prompt)
    for _ in range(NEW):
        ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
    hidden = model(torch.tensor([ids]), output_hidden_states=True).hidden_states
    tokens = []
    for p in range(len(prompt) - 1, len(ids) - 1):
        tops, entropies = [], []
        for layer, state in enumerate(hidden):
            state = state[0, p]
            if layer < len(hidden) - 1:
                state = norm(state)
            log_p = model.lm_head(state).log_softmax(-1)
            tops.append(int(log_p.argmax()))
            entropies.append(-float((log_p.exp() * log_p).sum()))
        settled = len(tops) - 1
        while settled > 1 and tops[settled - 1] == tops[-1]:
            settled -= 1
        tokens.append((ids[p + 1], settled, entropies))
    return tokens


@pytest.mark.parametrize("make", [stories, small_gpt2])
def test_every_new_token_is_what_a_plain_loop_in_float64_finds(make, shared, tmp_path):
    model, tokenizer, texts, norm = make(shared)
    reading = lens(model, data=texts, generate=NEW, processor=tokenizer)
    every = [by_a_plain_loop(model, tokenizer, text, norm) for text in reading.texts]
    tokens = [token for text in every for token in text]
    counted = reading.counted
    assert counted["id"].tolist() == [number for number, _, _ in tokens]
    assert counted["layer"].tolist() == [settled for _, settled, _ in tokens]
    entropies = np.array([entropies for _, _, entropies in tokens])
    thirds = np.array(["start"] * 5 + ["middle"] * 4 + ["end"] * 4)
    assert counted["third"].tolist() == [*thirds] * 3
    settled = np.array([settled for _, settled, _ in tokens])
    parts = reading.parts.set_index("part")
    assert [*parts.index] == ["all", "start", "middle", "end"]
    for part in parts.index:
        chosen = np.tile(thirds == part, 3) | (part == "all")
        of_part = reading.entropy[reading.entropy["part"] == part]
        assert of_part["layer"].tolist() == [*range(reading.depth + 1)]
        np.testing.assert_allclose(
            of_part["entropy"], entropies[chosen].mean(0), rtol=1e-6, atol=1e-6
        )
        assert parts["n"][part] == chosen.sum()
        assert parts["layer"][part] == pytest.approx(settled[chosen].mean())
        early = (settled[chosen] < reading.depth).mean()
        assert parts["early"][part] == pytest.approx(early)
    again = open_reading(reading.save(tmp_path / "out"))
    assert again.document() == reading.document()
    written = generate(model, [*reading.texts], processor=tokenizer, max_new_tokens=NEW)
    new = [[number for number, _, _ in text] for text in every]
    assert [*map(list, written.texts["ids"])] == new


@pytest.mark.parametrize(
    "pieces, named",
    [
        (["<think>", "a", "</think>", "b"], "atta"),
        (["a", "</think>", "b"], "tta"),  # the template opened it
        (["q", "<th", "ink>", "a", "</th", "ink>", "b"], "aaattta"),
        (["[THINK]", "a"], "at"),
        (["<think>", "a", "</think>", "<think>", "b", "</think>", "c"], "attatta"),
        (["<|channel|>", "analysis", "a", "<|channel|>", "final", "b"], "aattta"),
    ],
)
def test_marks_set_thinking_and_answer_apart(pieces, named):
    words = {"t": "thinking", "a": "answer"}
    assert phases(pieces) == [words[letter] for letter in named]


def test_a_text_without_marks_has_neither():
    assert phases(["a", "b"]) == [None, None]


def test_a_model_that_closes_its_thinking_is_read_by_thinking_and_answer():
    model = tiny.gpt2()
    plain = lens(model, "w1 w2 w3", generate=20, processor=word_tokenizer())
    new = plain.counted["id"].tolist()
    closing = new[7]
    first = new.index(closing)
    core = word_tokenizer().backend_tokenizer.to_str()
    core = core.replace(f'"w{closing}":', '"</think>":')
    tokenizer = hf.PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(core), unk_token="[SEP]"
    )
    marked = lens(model, "w1 w2 w3", generate=20, processor=tokenizer)
    again = [i for i, number in enumerate(new) if number == closing]
    named = marked.counted["phase"].tolist()
    assert named == ["thinking"] * (first + 1) + ["answer"] * (19 - first) and again
    parts = marked.parts.set_index("part")
    thinking = parts["n"]["thinking"], parts["n"]["answer"]
    assert thinking == (first + 1, 19 - first)
    layers = marked.counted["layer"]
    assert parts["layer"]["answer"] == layers[first + 1 - 20 :].mean()
    answer = next(line for line in findings(marked.counted) if "Answer" in line)
    assert "±" not in answer, "one text has no error"
    assert any(
        section.title == "Along the text" for section in marked.document().sections
    )


def planted(texts, later, seed=0):
    """Return the tokens of texts whose last third settles this much later, each text at a depth of its own."""
    rng = np.random.default_rng(seed)
    rows = []
    for text in range(texts):
        depth = rng.integers(3, 30)
        for third in ("start", "middle", "end"):
            shift = later if third == "end" else 0
            layers = depth + shift + rng.integers(0, 3, size=10)
            rows.append(
                pd.DataFrame({"sample": str(text), "third": third, "layer": layers})
            )
    return pd.concat(rows, ignore_index=True).assign(phase=None)


def test_a_late_end_is_noticed_within_texts_though_they_differ_more_among_each_other():
    tokens = planted(12, later=1)
    (line,) = findings(tokens)
    assert line.startswith("End against start: tokens settle later")
    means = tokens.groupby(["sample", "third"])["layer"].mean().unstack()
    change = means["end"] - means["start"]
    stderr = change.std() / math.sqrt(12)
    assert f"({change.mean():+.2f} ±{stderr:.2g})" in line
    parts = settling(tokens, 40).set_index("part")
    assert parts["stderr"]["end"] == pytest.approx(means["end"].std() / math.sqrt(12))
    # what is between texts is far more than the difference: apart, they would not show it
    assert parts["stderr"]["end"] > change.mean() / 2


def test_texts_that_use_depth_alike_throughout_are_said_to():
    lines = [next(findings(planted(12, later=0, seed=seed))) for seed in range(40)]
    alike = [line for line in lines if "settle equally deep" in line]
    assert len(alike) >= 34, "about 5 % differ by chance"


def test_a_reading_that_continued_nothing_has_the_entropy_alone():
    reading = lens(tiny.bert(), "w1 w2", processor=SPECIAL)
    assert reading.parts["part"].tolist() == ["all"] and not [
        *findings(reading.counted)
    ]
    titles = [section.title for section in reading.document().sections]
    assert "How sure each layer is" in titles


def test_a_head_that_knows_nothing_is_as_unsure_as_can_be():
    model = tiny.llama()
    with torch.no_grad():
        model.lm_head.weight.mul_(1e-5)
    reading = lens(model, "w1 w2 w3", processor=PLAIN)
    vocabulary = model.config.vocab_size
    assert reading.entropy["entropy"].tolist() == pytest.approx(
        [math.log(vocabulary)] * (reading.depth + 1), rel=1e-6
    )


def of_names(reading, names):
    samples = reading.saturation["sample"].map(names)
    return replace(reading, saturation=reading.saturation.assign(sample=samples))


def test_two_models_are_compared_over_as_many_tokens_of_each_text(tmp_path):
    texts = ["w1 w2 w3", "w4 w5"]
    long = lens(
        tiny.gpt2(), data=texts, generate=7, processor=PLAIN, out=tmp_path / "a"
    )
    short = lens(tiny.llama(), data=texts, generate=7, processor=PLAIN)
    ends = short.saturation.index[short.saturation["sample"] == short.samples[1]]
    # as of a model that ended the second text after four tokens
    short = replace(short, saturation=short.saturation.drop(ends[-3:]))
    short.save(tmp_path / "b")
    _, _, (first, second) = opened([tmp_path / "a", tmp_path / "b"])
    assert second.saturation.equals(short.saturation) and second.notes == short.notes
    assert len(first.counted) == 11 and len(long.counted) == 14
    counted = first.counted.reset_index(drop=True)
    kept = long.counted.iloc[[*range(7), *range(7, 11)]].reset_index(drop=True)
    assert counted.drop(columns="third").equals(kept.drop(columns="third"))
    assert counted["third"].tolist() == [*thirds(7), *thirds(4)]
    assert first.parts["n"].tolist() == [11, 5, 3, 3]
    layers = kept["layer"].mean()
    assert first.parts["layer"][0] == layers != long.parts["layer"][0]
    assert first.notes[-1].startswith("11 of 14 new tokens count")
    turned = [of_names(reading, {"0": "b", "1": "a"}) for reading in (long, short)]
    again = turned[0].beside(turned).counted["third"]
    assert again.tolist() == counted["third"].tolist(), "whatever samples are called"
    assert "11 new tokens settle" in first.document().answer


def test_readings_of_other_texts_and_uncontinued_ones_stay_as_they_are():
    texts = ["w1 w2 w3", "w4 w5"]
    model = tiny.gpt2()
    continued = lens(model, data=texts, generate=7, processor=PLAIN)
    others = [
        lens(model, data=texts, processor=PLAIN),
        lens(model, data=["w1 w2 w3", "w6"], generate=2, processor=PLAIN),
    ]
    for reading in (continued, *others):
        assert reading.beside([continued, *others]) is reading


def test_what_continues_no_text_is_refused_in_one_line():
    line = "`generate=9` needs a language model that continues texts: leave it out"
    with refused(line):
        lens(tiny.bert(), "w1 w2", generate=9, processor=SPECIAL)

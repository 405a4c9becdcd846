"""Exits for next tokens: what is decoded against a plain loop."""

import numpy as np
import pytest
import torch
import transformers as hf
from generation.drafting import made
from generation.talkers import TOKENIZER, loud, prompts as words_of
from models import zoo
from typed import refused

from layerscope import exits
from layerscope.core.progress import Reporter
from layerscope.early_exit import NextTokenExits
from layerscope.early_exit.next_token import record_tokens
from layerscope.generation.draft_report import open_draft_report
from layerscope.generation.language_model import language_model, token_ids
from layerscope.models import LoadOptions, Override, load

NEW = 20
LAYER = 2
FINAL_NORM = {zoo.gpt2: "transformer.ln_f", zoo.llama: "model.norm"}


@torch.no_grad()
def layers_said(model, ids, norm):
    """Return the probabilities [L, V] of the next token by layers 1 to L, from one forward over a text."""
    output = model(torch.tensor([ids]), output_hidden_states=True)
    normed = model.get_submodule(norm)
    states = [normed(state[0, -1]) for state in output.hidden_states[1:-1]]
    logits = [*map(model.lm_head, states), output.logits[0, -1]]
    return torch.stack(logits).softmax(-1)


def by_a_plain_loop(model, ids, threshold, norm):
    """Return the tokens that follow, how many left, and how sure the exit was, without any cache."""
    new, left, sure = [], 0, []
    for step in range(NEW):
        chances = layers_said(model, [*ids, *new], norm)
        sure.append(float(chances[LAYER - 1].max()))
        early = step > 0 and sure[-1] >= threshold
        new.append(int(chances[LAYER - 1 if early else -1].argmax()))
        left += early
    return new, left, sure


def test_what_it_cannot_keep_to_is_one_line():
    model = loud(zoo.gpt2())
    for layer, threshold, line in (
        (0, 0.5, "layer is 0"),
        (LAYER, "x", "threshold is"),
    ):
        with refused(line):
            NextTokenExits(model, layer, threshold)
    decode = NextTokenExits(model, LAYER, 0.5)
    how = {"max_new_tokens": 3, "custom_generate": decode}
    for other in (
        {"num_beams": 2},
        {"streamer": hf.TextStreamer(TOKENIZER)},
        {"do_sample": True},
    ):
        (name,) = other
        with refused(f"exits? .*{name}"):
            model.generate(torch.tensor([[1, 2, 3]]), **how | other)
    record = model.generate(
        torch.tensor([[1, 2, 3]]), return_dict_in_generate=True, **how
    )
    assert record.sequences.shape == (1, 6)


@pytest.mark.parametrize("make", [*FINAL_NORM], ids=["gpt2", "llama"])
@pytest.mark.parametrize("share", [0.0, 0.4, 0.7, 1.0])
def test_tokens_are_those_of_a_loop_over_whole_texts(make, share):
    model = loud(make())
    model.generation_config.eos_token_id = None
    ids = TOKENIZER(words_of((7,), seed=5)[0])["input_ids"]
    norm = FINAL_NORM[make]
    scores = by_a_plain_loop(model, ids, 1.1, norm)[2]
    threshold = float(np.quantile(scores, share)) if 0 < share < 1 else 1.1 * share
    decode = NextTokenExits(model, LAYER, threshold)
    prompt = torch.tensor([ids])
    text = model.generate(
        prompt, max_new_tokens=NEW, do_sample=False, custom_generate=decode
    )
    new, left, _ = by_a_plain_loop(model, ids, threshold, norm)
    assert text[0, len(ids) :].tolist() == new
    assert (decode.report.accepted, decode.report.drafted) == (left, NEW - 1)
    if threshold > 1:
        plain = model.generate(prompt, max_new_tokens=NEW, do_sample=False)
        assert torch.equal(plain, text) and left == 0
    elif threshold:
        assert 0 < left < NEW - 1, "some leave and some do not"


def test_texts_of_a_batch_leave_together_and_are_padded_where_one_has_ended():
    model = loud(zoo.gpt2())
    rows = [TOKENIZER(text)["input_ids"] for text in words_of((4, 9), seed=2)]
    width = max(map(len, rows))
    ids = torch.tensor([[0] * (width - len(row)) + row for row in rows])
    mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows])
    how = {"max_new_tokens": NEW, "do_sample": False, "pad_token_id": 0}
    model.generation_config.eos_token_id = None
    plain = model.generate(ids, attention_mask=mask, **how)
    ends = int(plain[0, width + 4])
    how |= {"eos_token_id": ends}
    plain = model.generate(ids, attention_mask=mask, **how)
    careful = NextTokenExits(model, LAYER, 1.1)
    text = model.generate(ids, attention_mask=mask, custom_generate=careful, **how)
    assert torch.equal(text, plain) and (text[0, width + 6 :] == 0).any()
    greedy = NextTokenExits(model, LAYER, 0.0)
    model.generate(ids, attention_mask=mask, custom_generate=greedy, **how)
    assert greedy.report.acceptance == 1


def test_a_model_that_cannot_be_split_is_refused():
    with refused("exits for next tokens do not work"):
        NextTokenExits(zoo.mamba(), 1, 0.5)


def test_one_token_of_each_text_is_recorded_as_a_plain_loop_has_it():
    module = loud(zoo.gpt2())
    model = language_model(load(module, LoadOptions(), TOKENIZER), Override())
    rows = token_ids(model, words_of((9, 14, 30, 10, 8, 21), seed=4))
    prefix, new = 6, 5
    made = record_tokens(model, rows, prefix, new, 3, Reporter())
    draws = np.random.default_rng(3)
    drawn = set()
    for i, row in enumerate(rows):
        length = draws.integers(prefix, min(len(row), prefix + new))
        drawn.add(int(length))
        chances = layers_said(module, row[:length], FINAL_NORM[zoo.gpt2])
        assert made.predictions[i].tolist() == chances.argmax(-1).tolist()
        np.testing.assert_allclose(made.scores[i], chances.amax(-1), rtol=1e-4)
    assert len(drawn) > 2 and made.classes == module.config.vocab_size


# the verb

TEXTS = words_of(tuple(10 + i % 9 for i in range(60)), seed=7)
FEW = {
    "prefix": 4, "max_new_tokens": 12, "samples": 2, "draft_tokens": 2, "processor": TOKENIZER,
}  # fmt: skip


@pytest.fixture(scope="module")
def report():
    return exits(made(zoo.gpt2, 0.1), TEXTS, max_disagreement=0.4, **FEW)


def test_an_exit_is_certified_and_raced_beside_the_drafts(report, tmp_path):
    way = report.ways[report.ways["draft_layer"].str.startswith("exit")].iloc[0]
    assert way["draft_layer"] == f"exit {report.calibration['exits'][0]}"
    assert way["measured"] > 0 and way["tokens_per_second"] > 0 and not way["chosen"]
    assert report.calibration["n"] == 48, "a fifth of 60 texts chooses the layer"
    assert "at most 40 % of predictions on new samples like these" in report.guarantee
    lines = " ".join(report.document().parts[0].texts)
    assert report.guarantee in lines
    assert "as fast as plain decoding; the text may differ" in lines
    again = open_draft_report(report.save(tmp_path / "out"))
    assert again.as_dict() == report.as_dict()


def test_the_exit_that_is_certified_is_one_of_those_given():
    chosen = exits(made(zoo.gpt2, 0.1), TEXTS, max_disagreement=0.4, exits=[1], **FEW)
    assert chosen.calibration["exits"] == [1]


def test_too_few_texts_are_a_note_or_a_line_where_a_guarantee_was_asked_for():
    model = made(zoo.gpt2, 0.1)
    report = exits(model, TEXTS, **FEW)
    assert report.calibration is None and report.guarantee == ""
    assert any("60 samples 48 would be tested" in note for note in report.notes)
    with refused("of 60 samples 48 would be tested"):
        exits(model, TEXTS, max_disagreement=0.02, **FEW)

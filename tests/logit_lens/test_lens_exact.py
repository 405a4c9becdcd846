"""At the last layer the lens is the model itself, of every architecture that has a head."""

from functools import partial

import numpy as np
import pytest
import torch
from models.test_capture import IDS, TEXTS, layered
from models.tokenizer import word_tokenizer, words
from models.zoo import MLP, TEXT, build, llama, of_class, t5, vit

from layerscope import lens
from layerscope.logit_lens import lens_pass
from layerscope.logit_lens.lens_pass import read_layers
from layerscope.logit_lens.translators import layer_states
from layerscope.models.forward import forward
from layerscope.models.lens import logits_of


def check(model, inputs, positions=None):
    """Every probability of the last layer is bit for bit that of the model's own logits."""
    own = (
        logits_of(forward(model.module, inputs)).float().reshape(-1, model.lens.classes)
    )
    own = own if positions is None else own[positions]
    states = layer_states(model, inputs)
    tops = read_layers(model, *states, positions, model.lens.classes)
    ids, probabilities = tops.ids, tops.probabilities
    assert ids.shape == (model.stack.depth + 1, len(own), model.lens.classes)
    best, logs = own.topk(own.shape[-1]), own.logsumexp(-1, keepdim=True)
    assert torch.equal(torch.from_numpy(ids[-1]), best.indices)
    assert torch.equal(torch.from_numpy(probabilities[-1]), (best.values - logs).exp())
    # every layer's are probabilities
    assert abs(probabilities.sum(-1) - 1).max() < 1e-5
    assert (probabilities[0] != probabilities[-1]).any()
    return own


@pytest.mark.parametrize("case", TEXT, ids=lambda case: case.name)
def test_a_language_model(case):
    model = layered(case.make())
    check(model, model.encoder.batch(TEXTS[:1]))
    check(model, model.encoder.batch(TEXTS[:1]), [2, 7])


@pytest.mark.parametrize(
    "make",
    [
        partial(of_class, "BertForSequenceClassification"),
        partial(of_class, "LlamaForSequenceClassification", pad_token_id=None),
        partial(of_class, "BertForTokenClassification"),
    ],
    ids=["bert", "llama", "tags"],
)
def test_a_classifier_of_texts_or_of_their_tokens(make):
    model = layered(make(num_labels=4))
    for text in TEXTS:
        check(model, model.encoder.batch([text]))


def test_images_rows_and_the_decoder_of_two_stacks():
    from PIL import Image

    images = [Image.effect_noise((16, 16), 60).convert("RGB")]
    model = layered(vit(), "image", images)
    check(model, model.encoder.batch(images))
    rows = list(torch.randn(4, 8, generator=torch.Generator().manual_seed(0)))
    model = layered(build(lambda: MLP(True, True)), "tensor", rows)
    check(model, model.encoder.batch(rows[:1]))
    model = layered(t5(), part="decoder")
    check(model, model.encoder.batch(TEXTS[:1]))


def test_a_text_with_more_logits_than_are_held_at_once_is_read_in_chunks(monkeypatch):
    model = layered(next(case for case in TEXT if case.name == "llama").make())
    inputs = model.encoder.batch(TEXTS[:1])
    states = layer_states(model, inputs)
    whole = read_layers(model, *states, None, 3)
    monkeypatch.setattr(lens_pass, "WHOLE", 99)
    chunked = read_layers(model, *states, None, 3)
    assert (chunked.ids == whole.ids).all()
    np.testing.assert_allclose(chunked.probabilities, whole.probabilities, rtol=1e-5)
    np.testing.assert_allclose(chunked.entropy, whole.entropy, rtol=1e-5)


@pytest.mark.parametrize(
    "case", [case for case in TEXT if case.causal], ids=lambda case: case.name
)
def test_a_continuation_is_the_models_own_and_its_tokens_are_the_last_layers_predictions(
    case,
):
    model, ids = case.make(), torch.tensor(IDS[:1])
    own = model.generate(ids, do_sample=False, max_new_tokens=5, pad_token_id=0)[
        0, ids.shape[1] :
    ].tolist()
    reading = lens(model, words(IDS[0]), processor=word_tokenizer(), generate=5)
    new = reading.saturation[reading.saturation["generated"]]
    assert new["id"].tolist() == own and reading.kind == "next"
    assert (
        reading.counted.equals(new)
        and len(reading.saturation) == len(IDS[0]) + len(own) - 1
    )
    assert reading.saturation["token"].tolist()[: len(IDS[0])] == [
        f"w{i}" for i in IDS[0]
    ]


def test_a_continuation_is_of_the_likeliest_tokens_whatever_the_models_settings_forbid():
    model = llama()
    own = model.generation_config
    own.repetition_penalty, own.no_repeat_ngram_size = 1.8, 1
    own.forced_eos_token_id, own.do_sample = 2, True
    reading = lens(model, words(IDS[0]), processor=word_tokenizer(), generate=6)
    new = reading.saturation[reading.saturation["generated"]]["prediction"].tolist()
    # a token that is no word has no text
    assert [token for token in new if token.startswith("w")] == reading.continuations[
        0
    ].split()
    assert (
        len(new) == 6
        and model.generation_config is own
        and own.repetition_penalty == 1.8
    )

"""Language models at every depth against the truncated checkpoint in transformers' own hands."""

from functools import partial

import pytest
import torch
import transformers as hf
from generation.talkers import (
    NEW,
    TOKENIZER,
    loud,
    name_of,
    of_transformers,
    prompts,
    score,
    told,
)
from models import zoo
from models.tokenizer import word_tokenizer, words
from models.zoo import L
from typed import refused

import layerscope
from layerscope import metrics
from layerscope.generation import generate


def test_every_depth_says_what_generate_of_the_truncated_model_says(cuts):
    texts, seen = prompts(), {}
    for layer, reference in cuts.items():
        found = told(cuts[L], texts, layer)
        assert [one.prompt for one in found] == texts and {
            one.layer for one in found
        } == {layer}
        for one in found:
            assert words(list(one.prompt_ids)) == one.prompt
            assert one.ids == of_transformers(reference, one.prompt_ids)
        seen[layer] = [one.ids for one in found]
    assert len({tuple(ids) for ids in seen.values()}) == L  # the depths differ,
    # and not by one repeated token each
    assert max(len(set(ids)) for rows in seen.values() for ids in rows) > 3
    assert max(len(ids) for rows in seen.values() for ids in rows) == NEW


def test_the_cache_is_used_and_texts_of_one_length_share_a_batch():
    model, read = loud(zoo.llama()), list[tuple[int, ...]]()
    model.get_input_embeddings().register_forward_hook(
        lambda _, args, __: read.append(tuple(args[0].shape))
    )
    told(model, ["w5 w6 w7", "w5 w6 w7 w8", "w8 w6 w5"], max_new_tokens=4)
    assert read[-8:] == [(2, 3), (2, 1), (2, 1), (2, 1), (1, 4), (1, 1), (1, 1), (1, 1)]


def test_the_real_model_tells_its_stories(shared, tmp_path):
    source = shared / "models" / "stories260K"
    layerscope.truncate(source, 3, tmp_path / "out")
    texts = [
        "Once upon a time",
        "The dog",
        "Lily and Tom went to the park because they",
        "",
    ]
    for layer in (3, 5):
        folder = source if layer == 5 else tmp_path / "out"
        reference, tokenizer = (
            hf.AutoModelForCausalLM.from_pretrained(folder),
            hf.AutoTokenizer.from_pretrained(folder),
        )
        for one in generate(
            source, texts, layers=layer, max_new_tokens=40
        ).texts.itertuples():
            assert one.prompt_ids == tuple(tokenizer(one.prompt)["input_ids"])
            assert one.ids == of_transformers(
                reference.eval(), one.prompt_ids, max_new_tokens=40
            )
            assert (
                tokenizer.decode([*one.prompt_ids, *one.ids], skip_special_tokens=True)
                == one.prompt + one.text
            )
    (story, *_) = generate(source, texts, max_new_tokens=40).texts.itertuples()
    assert story.text.startswith(", there was a little girl named Lily.")
    assert 0 < metrics.diversity(story.ids) <= 1


def test_a_text_stops_at_each_of_its_ends_and_the_others_go_on():
    model, texts = loud(zoo.llama()), prompts()
    free = told(model, texts)
    model.generation_config.eos_token_id = [free[0].ids[4], free[3].ids[7]]
    found = told(model, texts)
    assert [one.ids for one in found] == [
        of_transformers(
            model, one.prompt_ids, eos_token_id=model.generation_config.eos_token_id
        )
        for one in free
    ]
    assert len(found[0].ids) <= 5 and max(len(one.ids) for one in found) > 8


RWKV = partial(zoo.of_class, "RwkvForCausalLM", context_length=64)
LFM2 = partial(
    zoo.of_class, "Lfm2ForCausalLM", layer_types=["conv", "full_attention", "conv"]
)


@pytest.mark.parametrize("make, layer", [(RWKV, 2), (LFM2, 1)])
@torch.no_grad()
def test_a_cache_that_does_not_hold_is_found_out(make, layer, tmp_path):
    """RWKV's mixes the texts of a batch, and a hybrid cut to convolutions cannot tell how long its text is."""
    model = loud(make())
    how = {"processor": TOKENIZER}
    folder = layerscope.truncate(model, layer, tmp_path / "out", **how)
    reference = hf.AutoModelForCausalLM.from_pretrained(folder).eval()
    for one in told(model, prompts((4, 7, 4)), layer, max_new_tokens=8):
        ids = list(one.prompt_ids)
        for _ in range(8):
            logits = reference(torch.tensor([ids]), use_cache=False).logits
            ids.append(int(logits[0, -1].argmax()))
        assert one.ids == tuple(ids[-8:])


def broken():
    """Return a model that gives NaN from word w50 on."""
    model = loud(zoo.llama())
    with torch.no_grad():
        model.get_input_embeddings().weight[50] = torch.nan
    return model


@pytest.mark.parametrize("make", [zoo.bert, zoo.t5, zoo.vit], ids=name_of)
def test_what_is_no_language_model(make):
    model = make()
    line = rf"^{type(model).__name__} is not a language model that continues a text"
    with refused(line):
        generate(model, ["w3 w4"], processor=TOKENIZER)


def test_nan_is_told_with_its_layer_and_place():
    with refused("layer 2 gives NaN: check its weights"):
        told(broken(), ["w3 w4 w5", "w3 w4 w5 w6 w7 w50 w8 w9"], 2)
    with refused("layer 1 gives NaN on text 1: check its weights"):
        score(broken(), ["w3 w4 w5", "w3 w50 w5"])


def test_an_empty_prompt_begins_a_text_where_the_tokenizer_can():
    tokenizer = word_tokenizer()
    tokenizer.bos_token = "[CLS]"
    for prompt in ("", [""]):
        (one,) = told(zoo.gpt2(), prompt, processor=tokenizer)
        assert one.prompt_ids == (1,) and len(one.ids) == NEW

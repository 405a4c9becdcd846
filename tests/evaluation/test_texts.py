"""Pooled states of texts: each embedded once, the same however it is batched, there again after a restart."""

import numpy as np
import pytest
import tiny
import torch

from layerscope.evaluation.encoders import reader_of
from layerscope.evaluation.stored_texts import TextStates
from layerscope.models import LoadOptions, Override, load

MEAN = (2, "raw", "mean")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tiny.saved(tiny.gpt2(), tmp_path_factory.mktemp("models") / "tiny-gpt2")
    return reader_of(load(str(folder), LoadOptions(device="cpu"), None), Override())


def test_vectors_are_those_of_the_model_alone(model, tmp_path):
    texts = tiny.texts(40)
    columns = [(1, "raw", "mean"), (3, "normed", "last")]
    states = TextStates(model, columns, tmp_path)
    keys = states.keys(texts)
    ids = model.encoder.ids(texts)
    for i in (0, 7, 39):
        with torch.no_grad():
            out = model.module(torch.tensor([ids[i]]), output_hidden_states=True)
        wanted = out.hidden_states[1][0].mean(0), out.hidden_states[3][0, -1]
        for column, vector in zip(columns, wanted, strict=True):
            found = states.vectors([keys[i]], column)[0]
            assert np.allclose(found, vector.numpy(), atol=1e-5)


def test_every_text_is_embedded_once(model, counted, tmp_path):
    texts = tiny.texts(30)
    states = TextStates(model, [MEAN], tmp_path)
    first = states.vectors(states.keys(texts + texts[::-1]), MEAN)
    assert len(counted) == len(set(texts))
    assert np.array_equal(first[:30], first[30:][::-1])
    states.keys(texts)
    again = TextStates(model, [MEAN], tmp_path)
    assert np.array_equal(again.vectors(again.keys(texts), MEAN), first[:30])
    assert len(counted) == len(set(texts))
    # another pooling is another store
    assert TextStates(model, [(2, "raw", "last")], tmp_path).folder != again.folder
    again.drop()
    assert not list(tmp_path.rglob("*.safetensors"))
    again.keys(texts)
    assert len(counted) == 2 * len(set(texts)), "what was dropped is forgotten"


# the largest float; cut
@pytest.mark.parametrize("ending", [bytes.fromhex("ffff7f7f") * 3, b""])
def test_a_damaged_part_is_embedded_again(model, counted, tmp_path, ending):
    texts = tiny.texts(30)
    states = TextStates(model, [MEAN], tmp_path)
    first = states.vectors(states.keys(texts), MEAN)
    part = next(tmp_path.rglob("*.safetensors"))
    part.write_bytes(part.read_bytes()[:-12] + ending)
    before = len(counted)
    again = TextStates(model, [MEAN], tmp_path)
    assert np.array_equal(again.vectors(again.keys(texts), MEAN), first)
    assert len(counted) > before


def test_a_text_without_tokens_is_a_zero_vector(model, tmp_path):
    states = TextStates(model, [MEAN], tmp_path)
    found = states.vectors(states.keys(["", "w1 w2"]), MEAN)
    assert not found[0].any() and found[1].any()

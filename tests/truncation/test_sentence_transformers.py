"""A SentenceTransformer at a depth: with all that follows its transformer, loaded by its library alone."""

import numpy as np
import pytest
import tiny
import torch
import transformers as hf
from models import zoo
from sentence_transformers import SentenceTransformer
from sentence_transformers.models import Dense, Normalize, Pooling, Transformer
from truncation.cutting import (
    MINILM,
    TEXTS,
    close,
    cut,
    parts_of,
    pooled,
    serve,
    unit,
)
from typed import refused


def test_minilm_at_half_depth(tmp_path):
    served = serve(cut("minilm", 3, tmp_path / "cut"))
    close(served.encode(TEXTS), unit(pooled(MINILM, TEXTS, 3)))
    assert parts_of(served) == ["Transformer", "Pooling", "Normalize"]
    assert served.max_seq_length == 256 and len(served[0].auto_model.encoder.layer) == 3


def pipeline(tmp_path):
    folder = tiny.saved(tiny.bert(), tmp_path / "bert")
    torch.manual_seed(1)
    modules = [
        Transformer(str(folder), max_seq_length=16),
        Pooling(32, pooling_mode="cls"),
        Dense(32, 8, activation_function=torch.nn.Tanh()),
        Normalize(),
    ]
    prompts = {"query": "w1 w2 ", "document": "w3 "}
    return SentenceTransformer(
        modules=modules, prompts=prompts, default_prompt_name="query", device="cpu"
    )


@torch.no_grad()
def test_dense_normalize_prompts_and_length_stay_and_the_object_is_left_as_it_was(
    tmp_path,
):
    served, texts = pipeline(tmp_path), tiny.texts(6)
    before = served.encode(texts)
    short = serve(cut(served, 2, tmp_path / "cut"))
    assert short.prompts["document"] == "w3 " and short.default_prompt_name == "query"
    assert short.max_seq_length == 16
    core, dense, rows = served[0].auto_model, served[2].linear, []
    for text in texts:
        how = {"return_tensors": "pt", "truncation": True, "max_length": 16}
        read = served.tokenizer(f"w1 w2 {text}", **how)
        state = core(**read, output_hidden_states=True).hidden_states[2][:, 0]
        rows.append(unit(torch.tanh(dense(state)).numpy()))
    close(short.encode(texts), np.concatenate(rows))
    np.testing.assert_array_equal(served.encode(texts), before)
    plain = cut(served, 2, tmp_path / "plain", "transformers")
    assert hf.AutoModel.from_pretrained(plain).config.num_hidden_layers == 2
    assert not (plain / "modules.json").exists()


def test_another_pooling_takes_the_place_of_the_models(embedder, tmp_path):
    out = cut(embedder, 2, tmp_path / "cut", "sentence-transformers", pooling="cls")
    first = pooled(embedder, TEXTS, 2, lambda states: states[:, 0])
    close(serve(out).encode(TEXTS), unit(first))


@torch.no_grad()
def test_a_plain_model_gets_a_pooling(tmp_path):
    folder = tiny.saved(tiny.llama(), tmp_path / "llama")
    served = serve(cut(folder, 2, tmp_path / "cut", "sentence-transformers"))
    norm = tiny.llama().model.norm.double()
    wanted = pooled(folder, TEXTS, 2, lambda states: norm(states).mean(1))
    close(served.encode(TEXTS), wanted)


POOLINGS = {
    "mean": lambda states: states.mean(1),
    "cls": lambda states: states[:, 0],
    "last": lambda states: states[:, -1],
}


@pytest.mark.parametrize("pooling", POOLINGS)
def test_a_pooling_that_is_named_is_shipped(bert, pooling, tmp_path):
    out = cut(bert, 2, tmp_path / "cut", "sentence-transformers", pooling=pooling)
    close(serve(out).encode(TEXTS), pooled(bert, TEXTS, 2, POOLINGS[pooling]))


def test_a_pooling_needs_a_format_that_has_one(refusal, bert, tmp_path):
    options = f"--layer 2 --pooling cls --out {tmp_path}/no".split()
    line = "pooling cls needs --format sentence-transformers: "
    assert refusal("truncate", bert, *options).startswith(line)


def test_an_image_model_has_no_texts_to_encode(tmp_path):
    line = "reads no texts: `format='transformers'` writes it"
    with refused(line):
        cut(zoo.vit(), 1, tmp_path / "cut", "sentence-transformers")
    assert list(tmp_path.iterdir()) == []

"""A SentenceTransformer at a depth: with all that follows its transformer, loaded by its library alone."""

from pathlib import Path

import numpy as np
import pytest
import tiny
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.models import Dense, Normalize, Pooling, Transformer

import layerscope
from layerscope.models.checks import embedded

TEXTS = [
    "A cat sat on the mat.",
    "Entropy rises.",
    "One",
    "Layers differ in what they know of a longer text than this.",
]


@torch.no_grad()
def by_hand(folder: str, k: int) -> np.ndarray:
    """Mean over the real tokens of layer k of a BERT, scaled to length 1."""
    served = SentenceTransformer(folder, device="cpu")
    rows = []
    for text in TEXTS:
        given = served.tokenizer(text, return_tensors="pt")
        states = served[0].auto_model(**given, output_hidden_states=True).hidden_states[k]
        rows.append(torch.nn.functional.normalize(states.mean(1), dim=-1))
    return torch.cat(rows).numpy()


def test_minilm_at_half_depth(tmp_path: Path) -> None:
    out = layerscope.truncate("minilm", 3, tmp_path / "cut", progress=False)
    cut = SentenceTransformer(str(out), device="cpu")
    np.testing.assert_allclose(
        cut.encode(TEXTS), by_hand(embedded("minilm"), 3), rtol=1e-5, atol=1e-5
    )
    assert [type(module).__name__ for module in cut] == ["Transformer", "Pooling", "Normalize"]
    assert cut.max_seq_length == 256
    assert len(cut[0].auto_model.encoder.layer) == 3


def pipeline(tmp_path: Path) -> SentenceTransformer:
    folder = tiny.saved(tiny.bert(), tmp_path / "bert", special=True)
    torch.manual_seed(1)
    dense = Dense(32, 8, activation_function=torch.nn.Tanh())
    return SentenceTransformer(
        modules=[
            Transformer(str(folder), max_seq_length=16),
            Pooling(32, pooling_mode="cls"),
            dense,
            Normalize(),
        ],
        prompts={"query": "w1 w2 ", "document": "w3 "},
        default_prompt_name="query",
        device="cpu",
    )


@torch.no_grad()
def test_dense_normalize_prompts_and_length_stay(tmp_path: Path) -> None:
    served, texts = pipeline(tmp_path), tiny.texts(6)
    out = layerscope.truncate(served, 2, tmp_path / "cut", progress=False)
    cut = SentenceTransformer(str(out), device="cpu")
    assert (
        cut.prompts["document"] == "w3 "
        and cut.default_prompt_name == "query"
        and cut.max_seq_length == 16
    )
    rows = []
    for text in texts:
        given = served.tokenizer(
            "w1 w2 " + text, return_tensors="pt", truncation=True, max_length=16
        )
        state = served[0].auto_model(**given, output_hidden_states=True).hidden_states[2][:, 0]
        rows.append(torch.nn.functional.normalize(torch.tanh(served[2].linear(state)), dim=-1))
    np.testing.assert_allclose(cut.encode(texts), torch.cat(rows).numpy(), rtol=1e-5, atol=1e-5)


def test_the_object_serves_its_full_depth_afterwards(tmp_path: Path) -> None:
    served, texts = pipeline(tmp_path), tiny.texts(6)
    before = served.encode(texts)
    layerscope.truncate(served, 1, tmp_path / "cut", progress=False)
    np.testing.assert_array_equal(served.encode(texts), before)


@torch.no_grad()
def test_a_plain_model_gets_a_pooling(tmp_path: Path) -> None:
    folder = tiny.saved(tiny.llama(), tmp_path / "llama", special=False)
    out = layerscope.truncate(folder, 2, tmp_path / "cut", "sentence-transformers", progress=False)
    full, texts = tiny.llama().model, tiny.texts(5)
    rows = []
    for text in texts:
        ids = tiny.tokenizer(special=False)(text, return_tensors="pt")["input_ids"]
        rows.append(
            full.norm(full(input_ids=ids, output_hidden_states=True).hidden_states[2]).mean(1)
        )
    found = SentenceTransformer(str(out), device="cpu").encode(texts)
    np.testing.assert_allclose(found, torch.cat(rows).numpy(), rtol=1e-5, atol=1e-5)


def test_one_can_be_written_as_a_plain_model(tmp_path: Path) -> None:
    import transformers as hf

    out = layerscope.truncate(
        pipeline(tmp_path), 2, tmp_path / "cut", "transformers", progress=False
    )
    model = hf.AutoModel.from_pretrained(out)
    assert model.config.num_hidden_layers == 2 and not (out / "modules.json").exists()


def test_an_image_model_has_no_texts_to_encode(tmp_path: Path) -> None:
    from models import zoo

    with pytest.raises(
        layerscope.LayerscopeError, match="reads no texts: `format='transformers'` writes it"
    ):
        layerscope.truncate(zoo.vit(), 1, tmp_path / "cut", "sentence-transformers", progress=False)
    assert list(tmp_path.iterdir()) == []

"""Fewer dimensions shipped: the prefix of the layer's vectors, as they were judged, loaded by their library alone."""

from pathlib import Path

import numpy as np
import pytest
import tiny
import torch
import transformers as hf
from sentence_transformers import SentenceTransformer
from sentence_transformers.models import Normalize, Pooling, Transformer
from truncation.test_sentence_transformers import TEXTS

import layerscope
from layerscope.core.errors import LayerscopeError
from layerscope.models.checks import embedded
from layerscope.truncation import truncate_layers
from layerscope.truncation.costs import document


@torch.no_grad()
def pooled(layer: int) -> np.ndarray:
    """Mean over the real tokens of a layer of minilm in float64, before its Normalize."""
    full = SentenceTransformer(embedded("minilm"), device="cpu")
    full[0].auto_model.double()
    given = [full.tokenizer(text, return_tensors="pt") for text in TEXTS]
    states = [
        full[0].auto_model(**one, output_hidden_states=True).hidden_states[layer].mean(1)
        for one in given
    ]
    return torch.cat(states).numpy()


def unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def test_the_prefix_of_a_layer_is_what_is_written(tmp_path: Path) -> None:
    out = layerscope.truncate("minilm", 4, tmp_path / "cut", dim=128, progress=False)
    cut = SentenceTransformer(str(out), device="cpu")
    assert [type(module).__name__ for module in cut] == [
        "Transformer",
        "Pooling",
        "Dense",
        "Normalize",
    ]
    found, rows = cut.encode(TEXTS), pooled(4)
    np.testing.assert_allclose(found, unit(rows[:, :128]), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(
        found, unit(unit(rows)[:, :128]), rtol=1e-5, atol=1e-5
    )  # the prefix of its vectors
    assert not np.allclose(found, unit(rows[:, -128:]), atol=1e-2)
    assert (
        "layer 4 of the full model, at the first 128 dimensions of its vectors"
        in (out / "README.md").read_text()
    )


def test_a_plain_encoder_becomes_a_sentence_encoder_of_few_dimensions(tmp_path: Path) -> None:
    folder = tiny.saved(tiny.bert(), tmp_path / "bert", special=True)
    out = layerscope.truncate(
        str(folder), 2, tmp_path / "cut", "sentence-transformers", dim=8, progress=False
    )
    cut, full = (
        SentenceTransformer(str(out), device="cpu"),
        hf.AutoModel.from_pretrained(folder).double().eval(),
    )
    texts = tiny.texts(4)
    with torch.no_grad():
        given = [cut.tokenizer(text, return_tensors="pt") for text in texts]
        wanted = [
            full(**one, output_hidden_states=True).hidden_states[2].mean(1)[0, :8].numpy()
            for one in given
        ]
    np.testing.assert_allclose(cut.encode(texts), np.stack(wanted), rtol=1e-5, atol=1e-5)


def test_with_dropped_blocks_a_mix_half_precision_and_onnx(tmp_path: Path) -> None:
    full = SentenceTransformer(embedded("minilm"), device="cpu")
    mixed = layerscope.truncate(
        "minilm", mix=[2, 4], out=tmp_path / "mixed", dim=64, progress=False
    )
    wanted = unit(((pooled(2) + pooled(4)) / 2)[:, :64])
    np.testing.assert_allclose(
        SentenceTransformer(str(mixed)).encode(TEXTS), wanted, rtol=1e-5, atol=1e-5
    )
    dropped = layerscope.truncate(
        "minilm", out=tmp_path / "dropped", drop=[3], dim=64, progress=False
    )
    del full[0].auto_model.encoder.layer[2]
    wanted = unit(full.encode(TEXTS)[:, :64])
    np.testing.assert_allclose(
        SentenceTransformer(str(dropped)).encode(TEXTS), wanted, rtol=1e-5, atol=1e-5
    )
    half = layerscope.truncate(
        "minilm", 4, tmp_path / "half", dim=64, dtype="bfloat16", progress=False
    )
    found = SentenceTransformer(str(half), device="cpu")
    assert found[2].linear.weight.dtype == torch.bfloat16
    np.testing.assert_allclose(found.encode(TEXTS), unit(pooled(4)[:, :64]), atol=0.05)


def test_onnx_gives_them_too(tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    folder, given = (
        tiny.saved(tiny.bert(), tmp_path / "bert", special=True),
        str(tmp_path / "served"),
    )
    SentenceTransformer(modules=[Transformer(str(folder)), Pooling(32), Normalize()]).save(given)
    out = layerscope.truncate(given, 2, tmp_path / "onnx", format="onnx", dim=8, progress=False)
    session, texts = onnxruntime.InferenceSession(str(out / "model.onnx")), tiny.texts(3)
    tokenizer, full = (
        hf.AutoTokenizer.from_pretrained(out),
        hf.AutoModel.from_pretrained(folder).double().eval(),
    )
    batch = tokenizer(texts, padding=True, return_tensors="np")
    named = {entry.name: batch[entry.name] for entry in session.get_inputs()}
    with torch.no_grad():
        one = (
            full(**tokenizer(text, return_tensors="pt"), output_hidden_states=True)
            for text in texts
        )
        rows = [each.hidden_states[2].mean(1)[0, :8].numpy() for each in one]
    np.testing.assert_allclose(
        session.run(["sentence_embedding"], named)[0], unit(np.stack(rows)), atol=1e-5
    )


def test_what_has_no_such_vectors_is_refused_in_one_line(tmp_path: Path) -> None:
    llama = str(tiny.saved(tiny.llama(), tmp_path / "llama", special=False))
    vit, small = (
        tmp_path / "vit",
        {"num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48},
    )
    config = hf.ViTConfig(**small, hidden_size=32, image_size=16, patch_size=4)
    tiny.seeded(hf.ViTModel, config).save_pretrained(vit)
    hf.ViTImageProcessor(size={"height": 16, "width": 16}).save_pretrained(vit)
    mend = "`format='sentence-transformers'` makes it one"
    for given, options, line in (
        (
            "minilm",
            {"dim": 400},
            "dim is 400: the vectors of all-MiniLM-L6-v2 have 384 dimensions, give fewer",
        ),
        ("minilm", {"dim": 0}, "dim is 0"),
        ("minilm", {"dim": 8, "format": "transformers"}, mend),
        (llama, {"dim": 8, "format": "onnx"}, mend),
        (
            str(vit),
            {"dim": 8},
            "sentence encoder's vectors, and vit as transformers gives none: cut its own",
        ),
    ):
        with pytest.raises(LayerscopeError, match=line):
            layerscope.truncate(given, 1, tmp_path / "no", progress=False, **options)
        assert not (tmp_path / "no").exists()


def test_the_first_line_names_the_dimensions(tmp_path: Path) -> None:
    made = truncate_layers("minilm", [4], tmp_path / "cut", dim=64, progress=False)
    assert document(made).answer.startswith(
        "all-MiniLM-L6-v2, layers 1-4 of 6, the first 64 dimensions: "
    )


def test_all_dimensions_are_no_cut(tmp_path: Path) -> None:
    out = layerscope.truncate("minilm", 2, tmp_path / "whole", dim=384, progress=False)
    names = [type(module).__name__ for module in SentenceTransformer(str(out))]
    assert names == ["Transformer", "Pooling", "Normalize"]

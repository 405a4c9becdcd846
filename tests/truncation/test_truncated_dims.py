"""Fewer dimensions shipped: the prefix of the layer's vectors, as they were judged, loaded by their library alone."""

from pathlib import Path

import numpy as np
import tiny
import torch
import transformers as hf
from models import zoo
from models.tokenizer import saved
from truncation.cutting import (
    TEXTS,
    close,
    cut,
    parts_of,
    pooled,
    serve,
    truncated,
    unit,
)
from typed import refused


def test_the_prefix_of_a_layer_is_what_is_written(embedder, tmp_path):
    made = truncated(embedder, 4, tmp_path / "cut", dim=12)
    answer = made.document().answer
    assert answer.startswith("embedder, layers 1-4 of 6, the first 12 dimensions: ")
    short = serve(made.path)
    assert parts_of(short) == ["Transformer", "Pooling", "Dense", "Normalize"]
    vectors, rows = short.encode(TEXTS), pooled(embedder, TEXTS, 4)
    close(vectors, unit(rows[:, :12]))
    close(vectors, unit(unit(rows)[:, :12]))  # the prefix of its vectors
    words = "layer 4 of the full model, at the first 12 dimensions of its vectors"
    assert words in (Path(made.path) / "README.md").read_text()
    whole = serve(cut(embedder, 2, tmp_path / "whole", dim=32))
    assert parts_of(whole) == ["Transformer", "Pooling", "Normalize"]


def test_with_dropped_blocks_a_mix_and_half_precision(embedder, tmp_path):
    mixed = cut(embedder, mix=[2, 4], out=tmp_path / "mixed", dim=8)
    both = pooled(embedder, TEXTS, 2) + pooled(embedder, TEXTS, 4)
    close(serve(mixed).encode(TEXTS), unit((both / 2)[:, :8]))
    dropped = cut(embedder, out=tmp_path / "dropped", drop=[3], dim=8)
    full = serve(embedder)
    del full[0].auto_model.encoder.layer[2]
    close(serve(dropped).encode(TEXTS), unit(full.encode(TEXTS)[:, :8]))
    half = serve(cut(embedder, 4, tmp_path / "half", dim=8, dtype="bfloat16"))
    assert half[2].linear.weight.dtype == torch.bfloat16
    wanted = unit(pooled(embedder, TEXTS, 4)[:, :8])
    np.testing.assert_allclose(half.encode(TEXTS), wanted, atol=0.05)


def test_what_has_no_such_vectors_is_refused_in_one_line(embedder, tmp_path):
    llama = tiny.saved(tiny.llama(), tmp_path / "llama")
    processor = hf.ViTImageProcessor(size={"height": 16, "width": 16})
    vit = saved(zoo.of_class("ViTModel", **zoo.IMAGE), tmp_path / "vit", processor)
    mend = "`format='sentence-transformers'` makes it one"
    for given, options, line in (
        (embedder, {"dim": 400}, "the vectors of embedder have 32 dimensions"),
        (embedder, {"dim": 8, "format": "transformers"}, mend),
        (llama, {"dim": 8, "format": "onnx"}, mend),
        (vit, {"dim": 8}, "encoder's vectors, and vit as transformers gives none"),
    ):
        with refused(line):
            cut(given, 1, tmp_path / "no", **options)
        assert not (tmp_path / "no").exists()

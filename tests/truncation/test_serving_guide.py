"""The guide on serving: its Python runs on cut models as it stands, and all three engines give the same vectors."""

import re
from pathlib import Path

import numpy as np
import pytest
import tiny
from sentence_transformers.models import Normalize

import layerscope

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "serve.md"


def test_every_engine_serves_the_vectors_of_the_layer(tmp_path, monkeypatch):
    pytest.importorskip("onnxruntime")
    monkeypatch.chdir(tmp_path)
    plain = tiny.saved(tiny.bert().base_model, tmp_path / "plain")
    tiny.sentence_encoder(plain, Normalize()).save_pretrained("full")
    layerscope.truncate("full", 2, out="small")
    layerscope.truncate("full", 2, out="served", format="onnx")
    scope = {}
    blocks = re.findall(r"^```python\n(.*?)^```", GUIDE.read_text("utf-8"), re.M | re.S)
    assert len(blocks) == 3
    for block in blocks:
        exec(block, scope)
    vectors = [scope[name] for name in ("by_library", "by_hand", "by_onnx")]
    assert vectors[0].shape == (2, 32) and not np.allclose(vectors[0][0], vectors[0][1])
    for others in vectors[1:]:
        assert others == pytest.approx(vectors[0], abs=1e-5)

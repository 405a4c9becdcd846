"""What tests of truncated models share: cutting, serving, and the layers of a full model run by itself."""

import numpy as np
import pytest
import tiny
import torch
import transformers as hf
from sentence_transformers import SentenceTransformer
from torch import Tensor

import layerscope
from layerscope.core.options import checked
from layerscope.models.checks import embedded
from layerscope.truncation import pipeline
from layerscope.truncation.options import TruncateOptions

TEXTS = tiny.texts(4)
MINILM = embedded("minilm")


def cut(given, *args, **options):
    return layerscope.truncate(given, *args, **options)


def truncated(given, layer, out, **options):
    """Cut, and return what the command prints of it."""
    call = {"given": given, "layer": layer, "out": out, **options}
    return pipeline.cut(checked(layerscope.truncate, call, TruncateOptions))


def loaded(auto, folder):
    """Load a checkpoint that lacks nothing and holds nothing else."""
    model, report = auto.from_pretrained(folder, output_loading_info=True)
    assert not any(
        report[f"{kind}_keys"] for kind in ("missing", "unexpected", "mismatched")
    )
    return model.eval()


def close(one, two, near=1e-5):
    one, two = (
        np.asarray(value.detach() if isinstance(value, Tensor) else value)
        for value in (one, two)
    )
    np.testing.assert_allclose(one, two, rtol=near, atol=near)


def serve(folder):
    return SentenceTransformer(str(folder), device="cpu")


def unit(rows):
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@torch.no_grad()
def pooled(
    folder,
    texts,
    layer,
    pool=lambda states: states.mean(1),
):
    """Return vectors [N, D] of a layer of a plain model, each text run alone, in float64."""
    model = hf.AutoModel.from_pretrained(folder).double().eval()
    tokenizer = hf.AutoTokenizer.from_pretrained(folder)
    read = [tokenizer(text, return_tensors="pt") for text in texts]
    states = [
        model(**one, output_hidden_states=True).hidden_states[layer] for one in read
    ]
    return torch.cat([pool(one) for one in states]).numpy()


def parts_of(served):
    """Return the names of a SentenceTransformer's modules."""
    return [type(module).__name__ for module in served]


def run_onnx(folder, output, **inputs):
    """Return one output of an ONNX file for those inputs that it takes, by onnxruntime alone."""
    onnxruntime = pytest.importorskip("onnxruntime")
    path = str(folder / "model.onnx")
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [entry.name for entry in session.get_inputs()]
    return session.run([output], {name: np.asarray(inputs[name]) for name in names})[0]

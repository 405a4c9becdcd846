"""What tests of truncated models share: cutting, serving, and the layers of a full model run by itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import tiny
import torch
import transformers as hf
from models.tokenizer import word_tokenizer
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

import layerscope
from layerscope.core.options import checked
from layerscope.models.checks import embedded
from layerscope.truncation import pipeline
from layerscope.truncation.costs import Truncated
from layerscope.truncation.options import TruncateOptions

TEXTS = tiny.texts(4)
MINILM = embedded("minilm")


def saved(model: nn.Module, folder: Path, processor: object = None) -> Path:
    model.save_pretrained(folder)
    (processor or word_tokenizer()).save_pretrained(folder)
    return folder


def cut(given: object, *args: object, **options: object) -> Path:
    return layerscope.truncate(given, *args, progress=False, **options)


def truncated(
    given: object, layer: int | None, out: Path, **options: object
) -> Truncated:
    """Cut, and return what the command prints of it."""
    call = {"given": given, "layer": layer, "out": out, "progress": False, **options}
    return pipeline.cut(checked(layerscope.truncate, call, TruncateOptions))


def loaded(auto: type, folder: Path) -> nn.Module:
    """Load a checkpoint that lacks nothing and holds nothing else."""
    model, report = auto.from_pretrained(folder, output_loading_info=True)
    assert not any(
        report[f"{kind}_keys"] for kind in ("missing", "unexpected", "mismatched")
    )
    return model.eval()


def close(one: object, two: object, near: float = 1e-5) -> None:
    one, two = (
        np.asarray(value.detach() if isinstance(value, Tensor) else value)
        for value in (one, two)
    )
    np.testing.assert_allclose(one, two, rtol=near, atol=near)


def serve(folder: object) -> SentenceTransformer:
    return SentenceTransformer(str(folder), device="cpu")


def unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@torch.no_grad()
def pooled(
    folder: object,
    texts: Sequence[str],
    layer: int,
    pool: Callable[[Tensor], Tensor] = lambda states: states.mean(1),
) -> np.ndarray:
    """Return vectors [N, D] of a layer of a plain model, each text run alone, in float64."""
    model = hf.AutoModel.from_pretrained(folder).double().eval()
    tokenizer = hf.AutoTokenizer.from_pretrained(folder)
    read = [tokenizer(text, return_tensors="pt") for text in texts]
    states = [
        model(**one, output_hidden_states=True).hidden_states[layer] for one in read
    ]
    return torch.cat([pool(one) for one in states]).numpy()

"""A truncated model as a sentence-transformers folder, with its pooling and all that follows it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch

from layerscope.core.errors import LayerscopeError
from layerscope.models.pooling import pool
from layerscope.truncation.agreement import Expected, close_in, ending_at
from layerscope.truncation.checkpoint import check_checkpoint, save, save_processors
from layerscope.truncation.depth import Depth
from layerscope.truncation.source import Source

MODES = {"mean": "mean", "cls": "cls", "first": "cls", "last": "lasttoken"}


def write_sentence_transformer(source: Source, depth: Depth, expected: Expected, folder: Path) -> float:
    """Write a folder that `SentenceTransformer(path)` loads, and return how far its embeddings are from the layer's.

    Raises `LayerscopeError` where they are not that layer's.
    """
    served = source.model.loaded.served
    asked = source.pooling or source.scored
    keeps = served is None or asked not in MODES or (asked,) == source.model.loaded.pooling
    with nullcontext() if keeps else _pooled_by(served, str(asked)):
        wanted = _embeddings(source, expected)
        built = depth.build(source.module, expected.layer)
        if served is None:
            _around(built, source, folder)
        else:
            if hasattr(built.config, "auto_map"):
                del built.config.auto_map
            with _holding(served, source.module, built):
                served.save_pretrained(str(folder), create_model_card=False)
        return _check(folder, source, expected, wanted)


def _around(built: Any, source: Source, folder: Path) -> None:
    """Put a pooling after a plain transformers model."""
    SentenceTransformer, Pooling, Transformer = _classes()
    if source.model.encoder.modality != "text":
        raise LayerscopeError(f"{source.name} reads no texts: --format transformers writes it")
    with tempfile.TemporaryDirectory(dir=folder, prefix=".plain-") as plain:
        save(getattr(built, "base_model", built), Path(plain))
        save_processors(source, Path(plain))
        length = getattr(source.model.encoder, "max_length", None)
        how = {"local_files_only": True, "dtype": source.dtype}
        transformer = Transformer(plain, max_seq_length=length, model_kwargs=how)
        pooling = Pooling(source.model.stack.width, pooling_mode=MODES[source.pooled_by])
        model = SentenceTransformer(modules=[transformer, pooling], device="cpu")
        model.save_pretrained(str(folder), create_model_card=False)


def _embeddings(source: Source, expected: Expected) -> np.ndarray[Any, Any]:
    """What the full model's own pipeline makes of that layer."""
    served, model = source.model.loaded.served, source.model
    if served is not None:
        with ending_at(source.module, model.stack, expected.layer):
            return _encoded(served, source)
    pooling = source.pooled_by
    if expected.states[0].ndim != 3 or pooling not in MODES:
        raise LayerscopeError(f"{source.name} gives no states of tokens to pool: --format transformers writes it")
    return torch.cat([pool(states, None, pooling) for states in expected.states]).float().cpu().numpy()


def _encoded(served: Any, source: Source) -> np.ndarray[Any, Any]:
    """Return the embeddings of the samples, each alone: in half precision batch-mates show."""
    found = served.encode(list(source.samples), batch_size=1, convert_to_numpy=True, show_progress_bar=False)
    return np.asarray(found, dtype=np.float32)


@contextmanager
def _pooled_by(served: Any, pooling: str) -> Iterator[None]:
    """Within, a SentenceTransformer pools as was asked for, with all that follows its pooling."""
    name, own = next((name, child) for name, child in served.named_children() if type(child).__name__ == "Pooling")
    served._modules[name] = type(own)(own.embedding_dimension, pooling_mode=MODES[pooling])
    try:
        yield
    finally:
        served._modules[name] = own


@contextmanager
def _holding(served: Any, full: Any, built: Any) -> Iterator[None]:
    """Within, a SentenceTransformer holds the truncated model in the place of the full one."""
    first = served[0]
    name = next(name for name, child in first.named_children() if child is full)
    first._modules[name] = built
    try:
        yield
    finally:
        first._modules[name] = full


def _check(folder: Path, source: Source, expected: Expected, wanted: np.ndarray[Any, Any]) -> float:
    SentenceTransformer = _classes()[0]
    again = SentenceTransformer(
        str(folder), device=str(source.model.device), local_files_only=True, model_kwargs={"dtype": source.dtype}
    )
    found, close = _encoded(again, source), close_in(source.dtype)
    if found.shape != wanted.shape or not np.allclose(found, wanted, rtol=close, atol=close):
        by = float(np.abs(found - wanted).max()) if found.shape == wanted.shape else float("inf")
        raise LayerscopeError(
            f"the embeddings of the truncated {source.name} differ from layer {expected.layer} of the full model "
            f"(by {by:.1e}): nothing was written"
        )
    if source.model.loaded.served is not None:
        inner = next(child for child in again[0].children() if isinstance(child, type(source.module)))
        check_checkpoint(inner, source, expected)
    return float(np.abs(found - wanted).max())


def _classes() -> Sequence[Any]:
    try:
        from sentence_transformers import SentenceTransformer
        from sentence_transformers.models import Pooling, Transformer
    except ImportError:
        raise LayerscopeError(
            'this format needs sentence-transformers: pip install "layerscope[sentence-transformers]"'
        ) from None
    return SentenceTransformer, Pooling, Transformer

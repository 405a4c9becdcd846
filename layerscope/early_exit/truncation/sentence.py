"""A truncated model as a sentence-transformers folder, with its pooling and all that follows it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from layerscope.early_exit.truncation.agreement import EXACT, HALF, Expected, ending_at
from layerscope.early_exit.truncation.checkpoint import check_checkpoint, save, save_processors
from layerscope.early_exit.truncation.depth import Depth
from layerscope.early_exit.truncation.source import Source
from layerscope.errors import LayerscopeError
from layerscope.models.pooling import pool

MODES = {"mean": "mean", "cls": "cls", "first": "cls", "last": "lasttoken"}


def write_sentence_transformer(source: Source, depth: Depth, expected: Expected, folder: Path) -> None:
    """Write a folder that `SentenceTransformer(path)` loads, and raise where its embeddings are not that layer's."""
    wanted = _embeddings(source, expected)
    built = depth.build(source.module, expected.layer).to(source.dtype)
    served = source.model.loaded.served
    if served is None:
        _around(built, source, folder)
    else:
        if hasattr(built.config, "auto_map"):
            del built.config.auto_map
        with _holding(served, source.module, built):
            served.save_pretrained(str(folder), create_model_card=False)
    _check(folder, source, expected, wanted)


def pooling_of(source: Source) -> str:
    """Return the pooling that goes with a plain model: the run's first, else what the model itself uses."""
    return str(source.run.info["pooling"][0]) if source.run is not None else source.model.pooling[0]


def _around(built: Any, source: Source, folder: Path) -> None:
    """Put a pooling after a plain transformers model."""
    SentenceTransformer, Pooling, Transformer = _classes()
    if source.model.encoder.modality != "text":
        raise LayerscopeError(f"{source.name} reads no texts: --format transformers writes it")
    with tempfile.TemporaryDirectory(dir=folder, prefix=".plain-") as plain:
        save(getattr(built, "base_model", built), source, Path(plain))
        save_processors(source, Path(plain))
        length = getattr(source.model.encoder, "max_length", None)
        transformer = Transformer(plain, max_seq_length=length, model_kwargs={"local_files_only": True})
        pooling = Pooling(source.model.stack.width, pooling_mode=MODES[pooling_of(source)])
        model = SentenceTransformer(modules=[transformer, pooling], device="cpu")
        model.save_pretrained(str(folder), create_model_card=False)


def _embeddings(source: Source, expected: Expected) -> np.ndarray[Any, Any]:
    """What the full model's own pipeline makes of that layer."""
    served, model = source.model.loaded.served, source.model
    if served is not None:
        with ending_at(source.module, model.stack, expected.layer):
            return np.asarray(served.encode(list(source.samples), convert_to_numpy=True, show_progress_bar=False))
    pooling = pooling_of(source)
    if expected.states[0].ndim != 3 or pooling not in MODES:
        raise LayerscopeError(f"{source.name} gives no states of tokens to pool: --format transformers writes it")
    return torch.cat([pool(states, None, pooling) for states in expected.states]).cpu().numpy()


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


def _check(folder: Path, source: Source, expected: Expected, wanted: np.ndarray[Any, Any]) -> None:
    SentenceTransformer = _classes()[0]
    computed = next(p.dtype for p in source.module.parameters())
    again = SentenceTransformer(
        str(folder), device=str(source.model.device), local_files_only=True, model_kwargs={"dtype": computed}
    )
    found = np.asarray(again.encode(list(source.samples), convert_to_numpy=True, show_progress_bar=False))
    close = EXACT if computed in (torch.float32, torch.float64) else HALF
    if found.shape != wanted.shape or not np.allclose(found, wanted, rtol=close, atol=close):
        by = float(np.abs(found - wanted).max()) if found.shape == wanted.shape else float("inf")
        raise LayerscopeError(
            f"the embeddings of the truncated {source.name} differ from layer {expected.layer} of the full model "
            f"(by {by:.1e}): nothing was written"
        )
    if source.model.loaded.served is not None:
        inner = next(child for child in again[0].children() if isinstance(child, type(source.module)))
        check_checkpoint(inner, source, expected)


def _classes() -> Sequence[Any]:
    try:
        from sentence_transformers import SentenceTransformer
        from sentence_transformers.models import Pooling, Transformer
    except ImportError:
        raise LayerscopeError(
            'this format needs sentence-transformers: pip install "layerscope[sentence-transformers]"'
        ) from None
    return SentenceTransformer, Pooling, Transformer

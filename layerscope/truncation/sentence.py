"""A truncated model as a sentence-transformers folder, with its pooling and all that follows it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from layerscope.core.errors import LayerscopeError
from layerscope.models.pooling import pool
from layerscope.truncation.agreement import Expected, close_in
from layerscope.truncation.checkpoint import check_checkpoint, save, save_processors
from layerscope.truncation.depth import Depth
from layerscope.truncation.source import Source

Vectors = NDArray[np.float32]
MODES = {"mean": "mean", "cls": "cls", "first": "cls", "last": "lasttoken"}


def write_sentence_transformer(source: Source, depth: Depth, expected: Expected, folder: Path) -> float:
    """Write a folder that `SentenceTransformer(path)` loads, and return how far its embeddings are from the layer's.

    Raises `LayerscopeError` where they are not that layer's.
    """
    built = depth.build(source.module, expected.layer)
    served, pooling = source.model.loaded.served, source.pooling or source.scored
    if served is None:
        wanted = _pooled_states(source, expected)
        _around(built, source, folder)
        return _check(folder, source, expected, wanted)
    if hasattr(built.config, "auto_map"):
        del built.config.auto_map
    with ExitStack() as changes:
        if pooling in MODES and (pooling,) != source.model.loaded.pooling:
            own = next(child for child in served.children() if type(child).__name__ == "Pooling")
            other = type(own)(own.embedding_dimension, pooling_mode=MODES[pooling])
            changes.enter_context(_instead(served, own, other))
        changes.enter_context(_instead(served[0], source.module, built))
        served.save_pretrained(str(folder), create_model_card=False)
        return _check(folder, source, expected, _encoded(served, source))


def _around(built: Any, source: Source, folder: Path) -> None:
    """Put a pooling after a plain transformers model."""
    SentenceTransformer, Pooling, Transformer = _classes()
    with tempfile.TemporaryDirectory(dir=folder, prefix=".plain-") as plain:
        save(getattr(built, "base_model", built), Path(plain))
        save_processors(source, Path(plain))
        how = {"local_files_only": True, "dtype": source.dtype}
        transformer = Transformer(plain, max_seq_length=source.model.max_length, model_kwargs=how)
        pooling = Pooling(source.model.stack.width, pooling_mode=MODES[source.pooled_by])
        model = SentenceTransformer(modules=[transformer, pooling], device="cpu")
        model.save_pretrained(str(folder), create_model_card=False)


def _pooled_states(source: Source, expected: Expected) -> Vectors:
    """Return the full model's states of that layer, pooled."""
    pooling, reads = source.pooled_by, source.model.encoder.modality == "text"
    if not reads or expected.states[0].ndim != 3 or pooling not in MODES:
        why = "gives no states of tokens to pool" if reads else "reads no texts"
        raise LayerscopeError(f"{source.name} {why}: `format='transformers'` writes it")
    return torch.cat([pool(states, None, pooling) for states in expected.states]).float().cpu().numpy()


def _encoded(served: Any, source: Source) -> Vectors:
    """Return the embeddings of the samples, each alone: in half precision batch-mates show."""
    found = served.encode(list(source.samples), batch_size=1, convert_to_numpy=True, show_progress_bar=False)
    return np.asarray(found, dtype=np.float32)


@contextmanager
def _instead(parent: Any, child: Any, other: Any) -> Iterator[None]:
    """Within, a module holds another child instead of one of its own."""
    name = next(name for name, own in parent.named_children() if own is child)
    parent._modules[name] = other
    try:
        yield
    finally:
        parent._modules[name] = child


def _check(folder: Path, source: Source, expected: Expected, wanted: Vectors) -> float:
    """Return how far the embeddings of what was written are from those wanted, and its states from the full model's."""
    again = _classes()[0](
        str(folder), device=str(source.model.device), local_files_only=True, model_kwargs={"dtype": source.dtype}
    )
    found, close = _encoded(again, source), close_in(source.dtype)
    by = float(np.abs(found - wanted).max()) if found.shape == wanted.shape else float("inf")
    if not np.isfinite(by) or not np.allclose(found, wanted, rtol=close, atol=close):
        raise LayerscopeError(
            f"the embeddings of the truncated {source.name} differ from layer {expected.layer} of the full model "
            f"(by {by:.1e}): nothing was written"
        )
    if source.model.loaded.served is None:
        return by
    inner = next(child for child in again[0].children() if isinstance(child, type(source.module)))
    return max(by, check_checkpoint(inner, source, expected))


def _classes() -> Sequence[Any]:
    try:
        from sentence_transformers import SentenceTransformer
        from sentence_transformers.models import Pooling, Transformer
    except ImportError:
        raise LayerscopeError(
            'this format needs sentence-transformers: pip install "layerscope[sentence-transformers]"'
        ) from None
    return SentenceTransformer, Pooling, Transformer

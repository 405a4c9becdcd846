"""What a run is made of, and whether a run folder holds the same."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from platform import python_version
from typing import Any

import torch
from torch import nn

from layerscope.core.errors import LayerscopeError
from layerscope.inputs import Corpus
from layerscope.inputs.samples import Window
from layerscope.models import LayeredModel, Loaded
from layerscope.models.encode import TextEncoder
from layerscope.models.weights import numbers_of
from layerscope.profiling.options import Options
from layerscope.profiling.plan import Job

EXAMPLES = 3
EXAMPLE_LENGTH = 240
"""Characters of a sample that are kept as an example."""
VALUES_PER_WEIGHT = 64
PACKAGES = ("torch", "transformers", "sentence-transformers", "tokenizers", "numpy", "scipy", "scikit-learn")
TOKENISED = 64
COMPARED = (
    ("model", "model", "name"), ("model weights", "model", "weights"), ("device", "model", "device"),
    ("model dtype", "model", "dtype"), ("part", "model", "part"), ("blocks", "model", "blocks"),
    ("norm", "model", "norm"), ("projected", "model", "projected"), ("data", "data", "name"),
    ("data contents", "data", "fingerprint"),
)  # fmt: skip
"""What must match for a run folder to be resumed, besides options and tokens: its name, and where a manifest has it."""
PROBE = "The quick brown fox, 0123456789: ÀÉ あ."


def weights_fingerprint(module: nn.Module, dtype: torch.dtype | None = None) -> str:
    """Return a hash of every weight's name, shape and some of its values: another checkpoint gives another.

    With a dtype it is that of the weights in it, though they are held in another.
    """
    digest = hashlib.sha256()
    for name, tensor in numbers_of(module):
        flat = tensor.detach().reshape(-1)
        step = max(1, flat.numel() // VALUES_PER_WEIGHT)
        held = dtype if dtype is not None and tensor.is_floating_point() else tensor.dtype
        digest.update(f"{name}{tuple(tensor.shape)}{held}".encode())
        digest.update(flat[::step].to(held).float().cpu().numpy().tobytes())
    return digest.hexdigest()


def states_fingerprint(model: LayeredModel) -> str:
    """Return a hash of all that a sample's states depend on, but for the sample itself."""
    dtype, encoder, ids = next((p.dtype for p in model.module.parameters()), torch.float32), model.encoder, None
    if isinstance(encoder, TextEncoder) and encoder.tokenizer is not None:
        ids = replace(encoder, prompt="").ids([PROBE], whole=True)  # a prompt is part of the text
    about = weights_fingerprint(model.module), str(dtype), model.device.type, model.max_length, model.stack, ids
    return hashlib.sha256(repr(about).encode()).hexdigest()


def revision_of(loaded: Loaded) -> str:
    """Return a hub model's revision; of any other model a name made of its weights, those after the pooling too."""
    weights = loaded.served if loaded.served is not None else loaded.module
    return loaded.revision or f"weights-{weights_fingerprint(weights)[:12]}"


def tokens_fingerprint(model: LayeredModel, corpus: Corpus) -> str | None:
    """Return a hash of the first samples' token ids, so that another tokenizer or prompt is another run."""
    if not isinstance(model.encoder, TextEncoder):
        return None
    samples = [corpus.samples[i] for i in range(min(TOKENISED, len(corpus)))]
    return hashlib.sha256(repr(model.encoder.ids(samples)).encode()).hexdigest()


def examples(corpus: Corpus) -> list[str]:
    """Return the beginnings of the first samples, where they are texts: a reader sees what the model was shown."""
    if corpus.modality != "text":
        return []
    first = [corpus.samples[i] for i in range(min(EXAMPLES, len(corpus)))]
    texts = [sample.text if isinstance(sample, Window) else str(sample) for sample in first]
    cut = [text if len(text) <= EXAMPLE_LENGTH else f"{text[: EXAMPLE_LENGTH - 1]}…" for text in texts]
    return [text.encode("utf-8", "replace").decode() for text in cut]  # half a surrogate pair cannot be written


def describe(
    job: Job,
    model_source: str,
    data_source: str,
    command: str,
    *,
    text_column: str | None = None,
    label_column: str | None = None,
) -> dict[str, Any]:
    """Return the manifest of a run: everything to repeat it and to know it again.

    Model, data and columns are named as the user named them.
    """
    model, corpus, options, vectors = job.model, job.corpus, job.options, job.vectors
    return {
        **versions(),
        "command": command,
        "model": about_model(model, model_source),
        "data": {
            "name": corpus.name,
            "source": data_source,
            "text_column": text_column,
            "label_column": label_column,
            "examples": examples(corpus),
            "modality": corpus.modality,
            "samples": len(corpus),
            "fingerprint": corpus.fingerprint(),
            "labels": corpus.labels is not None,
            "tokens": tokens_fingerprint(model, corpus),
        },
        "pooling": list(vectors.poolings),
        "pair_pooling": list(vectors.pairs),
        "options": options.identity(),
    }


def about_model(model: LayeredModel, source: str) -> dict[str, Any]:
    """Return what a manifest keeps of a model that came from `source`."""
    dtype = next((p.dtype for p in model.module.parameters()), torch.float32)
    return {
        "name": model.loaded.name,
        "source": source,
        "revision": model.loaded.revision,
        "weights": weights_fingerprint(model.module),
        "class": type(model.module).__name__,
        "parameters": sum(p.numel() for p in model.module.parameters()),
        "device": model.device.type,
        "dtype": str(dtype).removeprefix("torch."),
        "part": model.stack.part,
        "depth": model.stack.depth,
        "width": model.stack.width,
        "blocks": list(model.stack.blocks),
        "norm": model.stack.norm,
        "found_by": model.stack.found_by,
        "sites": list(model.sites),
        "sublayers": {site: list(layers) for site, layers in model.sublayers.sites.items()},
        "projected": None if model.projection is None else {"width": model.projection.width},
        "states": states_fingerprint(model),
        "lens": None if model.lens is None else model.lens.kind,
        "language_model": model.is_language_model,
        "padding": model.padding,
        "batching": model.batching,
    }


def versions() -> dict[str, Any]:
    """Return the versions a manifest keeps: ours, Python's and those of the packages that compute."""
    found = {"python": python_version(), **{name: _version(name) for name in PACKAGES}}
    return {"layerscope": _version("layerscope"), "versions": found}


def refuse_another(path: Path, there: dict[str, Any], here: dict[str, Any]) -> None:
    """Raise where a run folder holds another run, naming the first thing that differs."""
    options = Options().identity() | there["options"]  # what an older run does not hold was as by default
    pairs = [(what, there[group].get(key), here[group][key]) for what, group, key in COMPARED]
    pairs += [(name, options.get(name), value) for name, value in here["options"].items()]
    for name, *values in [*pairs, ("tokens", there["data"].get("tokens"), here["data"]["tokens"])]:
        if values[0] != values[1]:
            texts = [",".join(map(str, value)) if isinstance(value, list) else str(value) for value in values]
            old, new = (text if len(text) <= 40 else text[:12] + "…" for text in texts)
            raise LayerscopeError(
                f"run folder {str(path)!r} holds another run ({name}: {old} there, {new} here): "
                "choose another folder with `out`, or delete it"
            )


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"

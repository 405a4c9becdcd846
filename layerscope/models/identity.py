"""What a model is known by: fingerprints of its weights and of how it reads, and what a manifest keeps of it."""

import hashlib
import json
import re
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import nn

from layerscope.inputs import Corpus
from layerscope.inputs.samples import hash_of
from layerscope.models.encode import AudioEncoder, ImageEncoder, TextEncoder
from layerscope.models.layered import LayeredModel
from layerscope.models.loaded import Loaded
from layerscope.models.weights import dtype_of, numbers_of, parameters

VALUES_PER_WEIGHT = 64
TOKENISED = 64
PROBE = "The quick brown fox, 0123456789: ÀÉ あ."


def weights_fingerprint(module: nn.Module, dtype: torch.dtype | None = None) -> str:
    """Return a hash of every weight's name, shape and some of its values: another checkpoint gives another.

    With a dtype it is that of the weights in it, though they are held in another.
    """
    digest = hashlib.sha256()
    for name, tensor in numbers_of(module):
        flat = tensor.detach().reshape(-1)
        step = max(1, flat.numel() // VALUES_PER_WEIGHT)
        held = tensor.dtype
        if tensor.is_floating_point():
            held = dtype or held
        digest.update(f"{name}{tuple(tensor.shape)}{held}".encode())
        some = flat[::step].to(held).float()
        digest.update(some.cpu().numpy().tobytes())
    return digest.hexdigest()


def states_fingerprint(model: LayeredModel) -> str:
    """Return a hash of all that a sample's states depend on, but for the sample itself."""
    encoder = model.encoder
    ids = None
    if isinstance(encoder, TextEncoder) and encoder.tokenizer is not None:
        # a prompt is part of the text
        ids = replace(encoder, prompt="").ids([PROBE], whole=True)
    about = (
        weights_fingerprint(model.module),
        f"torch.{dtype_of(model.module)}",
        model.device.type,
        model.max_length,
        model.stack,
        processing(model) or ids,
    )
    return hash_of(about)


def processing(model: LayeredModel) -> str | None:
    """Return a hash of the settings by which images or sounds become inputs, None of anything else.

    They are those that a processor saves; of a function what it prints, as a composition of
    transforms does.
    """
    if not isinstance(model.encoder, (ImageEncoder, AudioEncoder)):
        return None
    processor = model.encoder.processor
    text = repr(processor)
    if hasattr(processor, "to_dict"):
        text = json.dumps(processor.to_dict(), sort_keys=True, default=str)
    text = re.sub(" at 0x[0-9a-f]+", "", text)
    return hashlib.sha256(text.encode()).hexdigest()


def revision_of(loaded: Loaded) -> str:
    """Return a hub model's revision; of any other model a name made of its weights, those after the pooling too."""
    if loaded.revision:
        return loaded.revision
    weights = loaded.served
    if weights is None:
        weights = loaded.module
    return f"weights-{weights_fingerprint(weights)[:12]}"


def tokens_fingerprint(model: LayeredModel, corpus: Corpus) -> str | None:
    """Return a hash of the first samples' token ids, so that another tokenizer or prompt is another run.

    Of images and sounds it is that of their `processing`.
    """
    if not isinstance(model.encoder, TextEncoder):
        return processing(model)
    first = list(islice(corpus.samples, TOKENISED))
    return hash_of(model.encoder.ids(first))


def about_model(model: LayeredModel, source: str) -> dict[str, Any]:
    """Return what a manifest keeps of a model that came from `source`."""
    stack = model.stack
    projected = lens = None
    if model.projection is not None:
        projected = {"width": model.projection.width}
    if model.lens is not None:
        lens = model.lens.kind
    wrapped = {}
    if model.loaded.chat:
        wrapped["chat"] = True
    return {
        **wrapped,
        "name": model.name,
        "source": source,
        "revision": model.loaded.revision,
        "weights": weights_fingerprint(model.module),
        "class": type(model.module).__name__,
        "parameters": parameters(model.module),
        "device": model.device.type,
        "dtype": dtype_of(model.module),
        "part": stack.part,
        "depth": stack.depth,
        "width": stack.width,
        "norm": stack.norm,
        "found_by": stack.found_by,
        "blocks": list(stack.blocks),
        "sites": list(model.sites),
        "sublayers": model.sublayers.sites,
        "projected": projected,
        "states": states_fingerprint(model),
        "lens": lens,
        "language_model": model.is_language_model,
        "padding": model.padding,
        "batching": model.batching,
    }


def as_named(source: Any) -> str:
    """Return a path or a name as the user gives it; the kind of an object."""
    if isinstance(source, (str, Path)):
        return str(source)
    return type(source).__name__

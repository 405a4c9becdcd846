"""What a run is made of, whether a run folder holds the same, and the model of a run for verbs that take a run."""

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from layerscope.core.environment import versions
from layerscope.core.errors import LayerscopeError
from layerscope.core.hub import on_this_machine
from layerscope.core.state_store import first_difference
from layerscope.inputs import Corpus
from layerscope.inputs.samples import Window
from layerscope.models import LayeredModel, Loaded, LoadOptions, Override
from layerscope.models.checks import EMBEDDED
from layerscope.models.encode import AudioEncoder, ImageEncoder, TextEncoder
from layerscope.models.stored import StatesModel
from layerscope.models.weights import numbers_of
from layerscope.profiling.options import PassOptions
from layerscope.profiling.plan import Job
from layerscope.runs import Run, open_run

EXAMPLES = 3
EXAMPLE_LENGTH = 240
"""Characters of a sample that are kept as an example."""
VALUES_PER_WEIGHT = 64
DIGESTED = 16
"""So many samples tell states from others."""
TOKENISED = 64
COMPARED = (
    ("model", "model", "name"), ("model weights", "model", "weights"), ("device", "model", "device"),
    ("model dtype", "model", "dtype"), ("part", "model", "part"), ("blocks", "model", "blocks"),
    ("norm", "model", "norm"), ("projected", "model", "projected"), ("data", "data", "name"),
    ("samples", "data", "samples"), ("data contents", "data", "fingerprint"),
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


def _dtype(model: LayeredModel) -> str:
    return str(next((p.dtype for p in model.module.parameters()), torch.float32)).removeprefix(
        "torch."
    )


def states_fingerprint(model: LayeredModel) -> str:
    """Return a hash of all that a sample's states depend on, but for the sample itself."""
    encoder, ids = model.encoder, None
    if isinstance(encoder, TextEncoder) and encoder.tokenizer is not None:
        ids = replace(encoder, prompt="").ids([PROBE], whole=True)  # a prompt is part of the text
    about = (
        weights_fingerprint(model.module),
        f"torch.{_dtype(model)}",
        model.device.type,
        model.max_length,
        model.stack,
        processing(model) or ids,
    )
    return hashlib.sha256(repr(about).encode()).hexdigest()


def processing(model: LayeredModel) -> str | None:
    """Return a hash of the settings by which images or sounds become inputs, None of anything else.

    They are those that a processor saves; of a function what it prints, as a composition of
    transforms does.
    """
    encoder = model.encoder
    if not isinstance(encoder, (ImageEncoder, AudioEncoder)):
        return None
    processor = encoder.processor if isinstance(encoder, ImageEncoder) else encoder.extractor
    text = (
        json.dumps(processor.to_dict(), sort_keys=True, default=str)
        if hasattr(processor, "to_dict")
        else repr(processor)
    )
    return hashlib.sha256(re.sub(" at 0x[0-9a-f]+", "", text).encode()).hexdigest()


def revision_of(loaded: Loaded) -> str:
    """Return a hub model's revision; of any other model a name made of its weights, those after the pooling too."""
    weights = loaded.served if loaded.served is not None else loaded.module
    return loaded.revision or f"weights-{weights_fingerprint(weights)[:12]}"


def tokens_fingerprint(model: LayeredModel, corpus: Corpus) -> str | None:
    """Return a hash of the first samples' token ids, so that another tokenizer or prompt is another run.

    Of images and sounds it is that of their `processing`.
    """
    if not isinstance(model.encoder, TextEncoder):
        return processing(model)
    return hashlib.sha256(repr(model.encoder.ids(_first(corpus, TOKENISED))).encode()).hexdigest()


def examples(corpus: Corpus) -> list[str]:
    """Return the beginnings of the first samples, where they are texts: a reader sees what the model was shown."""
    first = _first(corpus, EXAMPLES) if corpus.modality == "text" else []
    texts = [sample.text if isinstance(sample, Window) else str(sample) for sample in first]
    cut = [
        text if len(text) <= EXAMPLE_LENGTH else f"{text[: EXAMPLE_LENGTH - 1]}…" for text in texts
    ]
    return [
        text.encode("utf-8", "replace").decode() for text in cut
    ]  # half a surrogate pair cannot be written


def _first(corpus: Corpus, most: int) -> list[Any]:
    return [corpus.samples[i] for i in range(min(most, len(corpus)))]


def as_named(source: Any) -> str:
    """Return a path or a name as the user gives it; the kind of an object."""
    return str(source) if isinstance(source, (str, Path)) else type(source).__name__


def describe(
    job: Job,
    source: str,
    data: str,
    command: str,
    *,
    text_column: str | None = None,
    label_column: str | None = None,
) -> dict[str, Any]:
    """Return a run's manifest, to repeat it and know it again; model, data and columns as the user named them."""
    model, corpus, options, vectors = job.model, job.corpus, job.options, job.vectors
    about = model.states.about if isinstance(model, StatesModel) else {}
    return {
        **versions(),
        "command": command,
        "model": about_model(model, source)
        | (about_states(model) if isinstance(model, StatesModel) else {}),
        "data": {
            "name": corpus.name,
            "source": data,
            "text_column": text_column,
            "label_column": label_column,
            "examples": examples(corpus),
            "modality": corpus.modality,
            "samples": len(corpus),
            "drawn_from": corpus.drawn_from,
            "fingerprint": about.get("fingerprint") or corpus.fingerprint(),
            "labels": corpus.labels is not None,
            "tokens": tokens_fingerprint(model, corpus),
        },
        "pooling": list(vectors.poolings),
        "pair_pooling": list(vectors.pairs),
        "options": options.identity(),
    }


def about_states(model: StatesModel) -> dict[str, Any]:
    """Return what a manifest says otherwise of states that were read; a hash of some tells them from others."""
    states, digest = model.states, hashlib.sha256()
    digest.update(
        repr(
            (states.layers, states.width, states.names, weights_fingerprint(model.module))
        ).encode()
    )
    for sample in np.unique(np.linspace(0, len(states.names) - 1, DIGESTED).astype(int)).tolist():
        digest.update(states.read([sample])[0].float().contiguous().numpy().tobytes())
    sums = dict.fromkeys(("weights", "states"), digest.hexdigest())
    about = {"states_from": str(states.path), "layers": list(states.layers), "whole": model.whole}
    about |= {"parameters": None, "blocks": []}
    return {**sums, **about}


def about_model(model: LayeredModel, source: str) -> dict[str, Any]:
    """Return what a manifest keeps of a model that came from `source`."""
    return {
        "name": model.loaded.name,
        "source": source,
        "revision": model.loaded.revision,
        "weights": weights_fingerprint(model.module),
        "class": type(model.module).__name__,
        "parameters": sum(p.numel() for p in model.module.parameters()),
        "device": model.device.type,
        "dtype": _dtype(model),
        **{
            name: getattr(model.stack, name)
            for name in ("part", "depth", "width", "norm", "found_by")
        },
        "blocks": list(model.stack.blocks),
        "sites": list(model.sites),
        "sublayers": {site: list(layers) for site, layers in model.sublayers.sites.items()},
        "projected": None if model.projection is None else {"width": model.projection.width},
        "states": states_fingerprint(model),
        "lens": None if model.lens is None else model.lens.kind,
        "language_model": model.is_language_model,
        "padding": model.padding,
        "batching": model.batching,
    }


def refuse_another(path: Path, there: dict[str, Any], here: dict[str, Any]) -> None:
    """Raise where a run folder holds another run, naming the first thing that differs."""
    # what an older run does not hold was as by default
    options = PassOptions().identity() | there["options"]
    pairs = [(what, there[group].get(key), here[group][key]) for what, group, key in COMPARED]
    pairs += [(name, options.get(name), value) for name, value in here["options"].items()]
    read = "tokens" if here["data"]["modality"] == "text" else "preprocessing"
    old, new = (facts["data"].get("tokens") for facts in (there, here))
    if differs := first_difference(
        [*pairs, (read, old or new, new)]
    ):  # older runs of images do not say
        raise LayerscopeError(
            f"run folder {str(path)!r} holds another run ({differs}): choose another folder with `out`, or delete it"
        )


def run_of(source: Any) -> Run | None:
    """Return the run that was given, opened where it is a folder of one; None where a model was given."""
    if isinstance(source, Run):
        return source
    folder = on_this_machine(source) if isinstance(source, (str, Path)) else None
    return open_run(folder) if folder is not None and (folder / "run.json").is_file() else None


def model_of(
    run: Run, override: Override, options: LoadOptions
) -> tuple[str, Override, LoadOptions]:
    """Return where a run's model is, and how it was overridden and loaded; what is given now goes first.

    Raises `LayerscopeError` for a run of a model that was in memory, and for the history of a
    training.
    """
    if run.is_history:
        run.need_states()
    if not run.has_model:
        made = f"was made from states of {run.info['model']['states_from']!r}, without a model"
        raise LayerscopeError(f"run {str(run.path)!r} {made}: give the model itself")
    source, options_then = str(run.info["model"]["source"]), run.info["options"]
    if not run.names_model:
        raise LayerscopeError(
            f"run {str(run.path)!r} was made from a model in memory ({source}): give the model itself"
        )
    override = Override(
        *(getattr(override, name) or options_then.get(name) for name in ("part", "blocks", "norm"))
    )
    is_local = Path(source).expanduser().exists() or source == EMBEDDED
    revision = options.revision or (None if is_local else run.info["model"].get("revision"))
    return source, override, replace(options, revision=revision)


def check_unchanged(run: Run, model: LayeredModel, *, as_stored: bool = False) -> None:
    """Raise where the model of a run is no longer what it was: its scores would be another model's.

    Weights are compared where they are in the run's dtype; `as_stored`, in float32 too, which holds
    them exactly.
    """
    there = run.info["model"]
    exact = torch.float32 if as_stored and there.get("dtype") == "float32" else None
    is_comparable = there.get("dtype") == _dtype(model) or exact is not None
    if run.depth != model.stack.depth or (
        is_comparable and there.get("weights") != weights_fingerprint(model.module, exact)
    ):
        raise LayerscopeError(
            f"the model of run {str(run.path)!r} ({there['source']}) has changed since: profile it again, "
            "or give the model without the run"
        )


def reusable(
    run: Run | None, model: LayeredModel, vectors: Iterable[tuple[int, str, str]]
) -> Run | None:
    """Return the run if its states of these layers, sites and poolings are those that the model would give again."""
    if run is None or run.info["model"].get("states") != states_fingerprint(model):
        return None
    sites, poolings = run.info["model"]["sites"], run.info["pooling"]
    there = all(site in sites and pooling in poolings for _, site, pooling in vectors)
    return run if there and run.info["options"]["store_dtype"] == "float32" else None

"""What a run is made of, and whether a run folder holds the same.

The manifest of a run has its model, data and options, all that is needed to repeat it. A run is
resumed only with the weights, dtype, device, samples, tokens and options that it was started with:
half a run of one model and half of another would look like a whole one.
"""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from layerscope.core import LayerscopeError, jsonable, versions
from layerscope.core.state_store import first_difference
from layerscope.inputs import Corpus
from layerscope.inputs.samples import Window
from layerscope.models.identity import (
    about_model,
    tokens_fingerprint,
    weights_fingerprint,
)
from layerscope.models.stored import StatesModel
from layerscope.profiling.plan import Job

EXAMPLES = 3
EXAMPLE_LENGTH = 240
"""Characters of a sample that are kept as an example."""
DIGESTED = 16
"""So many samples tell states from others."""
COMPARED = {
    "model": {
        "name": "model",
        "weights": "model weights",
        "device": "device",
        "dtype": "model dtype",
        "part": "part",
        "blocks": "blocks",
        "norm": "norm",
        "projected": "projected",
    },
    "data": {"name": "data", "samples": "samples", "fingerprint": "data contents"},
}
"""What must match for a run folder to be resumed, besides options and tokens: where a manifest has it, and its name."""


def examples(corpus: Corpus) -> list[str]:
    """Return the beginnings of the first samples, where they are texts: a reader sees what the model was shown.

    Of other samples there are none.
    """
    texts = list[str]()
    if corpus.modality != "text":
        return texts
    for sample in corpus.samples[:EXAMPLES]:
        text = sample.text if isinstance(sample, Window) else str(sample)
        if len(text) > EXAMPLE_LENGTH:
            text = f"{text[: EXAMPLE_LENGTH - 1]}…"
        # half a surrogate pair cannot be written
        texts.append(text.encode("utf-8", "replace").decode())
    return texts


def describe(
    job: Job,
    source: str,
    data: str,
    command: str,
    *,
    text_column: str | None = None,
    label_column: str | None = None,
) -> dict[str, Any]:
    """Return a run's manifest, to repeat and recognise it; model, data and columns are named as the user did."""
    model = job.model
    corpus = job.corpus
    vectors = job.vectors
    described = about_model(model, source)
    fingerprint = None
    if isinstance(model, StatesModel):
        described |= about_states(model)
        fingerprint = model.states.about.get("fingerprint")
    return {
        **versions(),
        "command": command,
        "model": described,
        "data": {
            "name": corpus.name,
            "source": data,
            "text_column": text_column,
            "label_column": label_column,
            "examples": examples(corpus),
            "modality": corpus.modality,
            "samples": len(corpus),
            "drawn_from": corpus.drawn_from,
            "fingerprint": fingerprint or corpus.fingerprint(),
            "labels": corpus.labels is not None,
            "tokens": tokens_fingerprint(model, corpus),
        },
        "pooling": list(vectors.poolings),
        "pair_pooling": list(vectors.pairs),
        "options": jsonable(job.options),
    }


def about_states(model: StatesModel) -> dict[str, Any]:
    """Return what a manifest says differently of states that were read.

    They have no weights: a hash of some of them tells them from others.
    """
    states = model.states
    weights = weights_fingerprint(model.module)
    facts = (states.layers, states.width, states.names, weights)
    digest = hashlib.sha256(repr(facts).encode())
    some = np.linspace(0, len(states.names) - 1, DIGESTED).astype(int)
    for sample in np.unique(some).tolist():
        (row,) = states.read([sample])
        digest.update(row.float().contiguous().numpy().tobytes())
    return {
        "weights": digest.hexdigest(),
        "states": digest.hexdigest(),
        "states_from": str(states.path),
        "layers": list(states.layers),
        "whole": model.whole,
        "parameters": None,
        "blocks": [],
    }


def refuse_another(path: Path, there: dict[str, Any], here: dict[str, Any]) -> None:
    """Raise where a run folder holds another run, naming the first thing that differs."""
    pairs = []
    for group, names in COMPARED.items():
        for key, name in names.items():
            pairs.append((name, there[group].get(key), here[group][key]))
    for name, value in here["options"].items():
        pairs.append((name, there["options"].get(name), value))
    read = "tokens" if here["data"]["modality"] == "text" else "preprocessing"
    pairs.append((read, there["data"].get("tokens"), here["data"].get("tokens")))
    if differs := first_difference(pairs):
        raise LayerscopeError(
            f"run folder {str(path)!r} holds another run ({differs}): choose another folder with `out`, or delete it"
        )

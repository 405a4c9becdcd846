"""A batch of columns with the states of its samples added, by a model that each process loads once."""

from collections.abc import Mapping
from pathlib import Path
from types import NoneType
from typing import Any

import torch

from layerscope.core.errors import LayerscopeError, choices
from layerscope.core.options import Asked
from layerscope.extraction.pipeline import layered, wanted_of
from layerscope.extraction.reading import Wanted, prepare, read_states
from layerscope.inputs import open_corpus
from layerscope.models import LayeredModel
from layerscope.models.capture import evaluating

_ready: dict[Any, tuple[Any, LayeredModel, Wanted]] = {}


def with_states(asked: Asked, column: str, batch: Mapping[str, Any]) -> dict[str, Any]:
    """Return a batch with the pooled states of the samples in a column, an array [n, D] for each layer and pooling."""
    if column not in batch:
        raise LayerscopeError(
            f"the batch has no column {column!r}{choices(column, batch, 'it has')}"
        )
    samples = list(batch[column])
    is_text = any(isinstance(sample, str) for sample in samples)
    if (
        is_text
        and (odd := next((one for one in samples if not isinstance(one, (str, NoneType))), None))
        is not None
    ):
        raise LayerscopeError(f"column {column!r} holds {odd!r} among its texts: give texts alone")
    kept = [
        i
        for i, sample in enumerate(samples)
        if not (sample is None or (is_text and not sample.strip()))
    ]
    if (loaded := _loaded(asked, [samples[i] for i in kept])) is None:
        return dict(batch)
    model, wanted = loaded
    with evaluating(model.module):
        read = read_states(
            model, prepare(model, [samples[i] for i in kept]), wanted, asked.batch_size
        )
    found, rows = dict(batch), [kept[i] for i in read.rows]
    for name, states in read.states.items():
        whole = torch.full((len(wanted.layers), len(samples), model.stack.width), torch.nan)
        whole[:, rows] = states
        ending = f".{name}" if len(read.states) > 1 else ""
        found |= {
            f"layer_{layer}{ending}": own.numpy()
            for layer, own in zip(wanted.layers, whole, strict=True)
        }
    return found


def _loaded(asked: Asked, samples: list[Any]) -> tuple[LayeredModel, Wanted] | None:
    """Return the model and what is wanted of it; None where there is no sample yet to find its layers by."""
    named = isinstance(asked.model, (str, Path))
    options = repr(
        [(name, value) for name, value in vars(asked).items() if named or name != "model"]
    )
    key = options, 0 if named else id(asked.model)
    if key not in _ready and not samples:
        return None
    if key not in _ready:
        model = layered(asked, open_corpus(samples))
        _ready[key] = (
            asked.model,
            model,
            wanted_of(asked, model),
        )  # a model that is kept keeps its number
    return _ready[key][1:]

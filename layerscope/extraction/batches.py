"""A batch of columns with the states of its samples added, by a model that each process loads once."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from layerscope.core.errors import LayerscopeError, choices
from layerscope.core.options import Asked
from layerscope.extraction.pipeline import layered, wanted_of
from layerscope.extraction.reading import Wanted, read_states
from layerscope.inputs import open_corpus
from layerscope.models import LayeredModel
from layerscope.models.capture import evaluating

_ready: dict[Any, tuple[Any, LayeredModel, Wanted]] = {}


def with_states(asked: Asked, column: str, batch: Mapping[str, Any]) -> dict[str, Any]:
    """Return a batch with the pooled states of the samples in a column, an array [n, D] for each layer and pooling."""
    if column not in batch:
        raise LayerscopeError(f"the batch has no column {column!r}{choices(column, batch, 'it has')}")
    samples = list(batch[column])
    if not samples:
        return dict(batch)
    model, wanted = _loaded(asked, samples)
    with evaluating(model.module):
        read = read_states(model, samples, wanted, asked.batch_size)
    found = dict(batch)
    for name, states in read.states.items():
        whole = torch.full((len(wanted.layers), len(samples), model.stack.width), torch.nan)
        whole[:, read.rows] = states
        ending = f".{name}" if len(read.states) > 1 else ""
        found |= {f"layer_{layer}{ending}": own.numpy() for layer, own in zip(wanted.layers, whole, strict=True)}
    return found


def _loaded(asked: Asked, samples: list[Any]) -> tuple[LayeredModel, Wanted]:
    named = isinstance(asked.model, (str, Path))
    options = repr([(name, value) for name, value in vars(asked).items() if named or name != "model"])
    key = options, 0 if named else id(asked.model)
    if key not in _ready:
        model = layered(asked, open_corpus(samples))
        _ready[key] = asked.model, model, wanted_of(asked, model)  # a model that is kept keeps its number
    return _ready[key][1:]

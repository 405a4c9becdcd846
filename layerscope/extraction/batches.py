"""A batch of columns with the states of its samples added, by a model that each process loads once."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import NoneType
from typing import Any

import torch

from layerscope.core import LayerscopeError, choices
from layerscope.extraction.options import ExtractOptions
from layerscope.extraction.pipeline import layered, wanted_of
from layerscope.extraction.reading import Wanted, prepare, read_states
from layerscope.inputs import open_corpus
from layerscope.models import LayeredModel, evaluating

_ready: dict[Any, tuple[Any, LayeredModel, Wanted]] = {}


def with_states(
    options: ExtractOptions, column: str, batch: Mapping[str, Any]
) -> dict[str, Any]:
    """Return a batch with the pooled states of the samples in a column, an array [n, D] for each layer and pooling."""
    if column not in batch:
        raise LayerscopeError(
            f"the batch has no column {column!r}{choices(column, batch, 'it has')}"
        )
    samples = list(batch[column])
    filled = _filled(samples, column)
    given = [samples[i] for i in filled]
    ready = _loaded(options, given)
    columns = dict(batch)
    if ready is None:
        return columns
    model, wanted = ready
    with evaluating(model.module):
        prepared = prepare(model, given)
        read = read_states(model, prepared, wanted)
    rows = [filled[i] for i in read.rows]
    for pooling, states in read.states.items():
        whole = torch.full((len(wanted.layers), len(samples), model.width), torch.nan)
        whole[:, rows] = states
        ending = ""
        if len(read.states) > 1:
            ending = f".{pooling}"
        for layer, vectors in zip(wanted.layers, whole, strict=True):
            columns[f"layer_{layer}{ending}"] = vectors.numpy()
    return columns


def _filled(samples: Sequence[Any], column: str) -> list[int]:
    """Return the numbers of the samples that are neither None nor blank; texts mixed with others are refused."""
    is_text = any(isinstance(sample, str) for sample in samples)
    filled = []
    for number, sample in enumerate(samples):
        if is_text and not isinstance(sample, (str, NoneType)):
            raise LayerscopeError(
                f"column {column!r} holds {sample!r} among its texts: give texts alone"
            )
        if not (sample is None or (is_text and not sample.strip())):
            filled.append(number)
    return filled


def _loaded(
    options: ExtractOptions, samples: list[Any]
) -> tuple[LayeredModel, Wanted] | None:
    """Return the model and what is wanted of it; None where there is no sample yet to find its layers by."""
    # a set is not printed in one order everywhere
    plain = replace(options, changed=frozenset())
    kept = 0
    if not isinstance(options.model, (str, Path)):
        plain = replace(plain, model=None)
        kept = id(options.model)
    key = repr(plain), kept
    if key not in _ready:
        if not samples:
            return None
        model = layered(options, open_corpus(samples))
        # a model that is kept keeps its number
        _ready[key] = options.model, model, wanted_of(options, model)
    return _ready[key][1:]

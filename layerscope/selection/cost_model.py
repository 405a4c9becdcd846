"""What a model costs at every depth: the run's own model, or one that an evaluation names."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from huggingface_hub import try_to_load_from_cache

from layerscope.core import LayerscopeError, Reporter, processes
from layerscope.models import LoadOptions, Override
from layerscope.models.checks import EMBEDDED
from layerscope.scores.evaluation import ModelOrigin
from layerscope.truncation.costs import Costs, costs_by_depth
from layerscope.truncation.options import POOLINGS
from layerscope.truncation.source import Source, open_source

UNKNOWN = ModelOrigin(None, 0)
"""Stands for the origin of a model that `evaluate` did not load."""


def open_model(given: Any, device: str, origin: ModelOrigin = UNKNOWN) -> Source:
    """Return a model, by name or a run's, with its layers found; None is a model that is not here."""
    if given is None:
        raise LayerscopeError(
            "the model itself is not on this machine: download it first"
        )
    options = LoadOptions(device=device)
    source = open_source(given, None, Override(origin.part), options)
    return replace(source, tokens=origin.tokens or source.tokens)


def costs_of(source: Source, layers: Sequence[int], reporter: Reporter) -> Costs:
    """Return what a model costs at these depths, measured on this machine."""
    depth = source.model.depth
    deepest = max(layers, default=0)
    if deepest > depth:
        raise LayerscopeError(
            f"{source.name} has {depth} layers, and layer {deepest} was scored: it is another model"
        )
    reporter.say(f"costs: {source.name} at {len(layers)} depths")
    return processes.team().lead(lambda: costs_by_depth(source, layers))


def is_pooled_by_us(pooling: str | None, source: Source | None) -> bool:
    """Return whether a checkpoint must record the pooling: its makers do not serve the model with it.

    A model that was not opened is taken for one that pools nothing.
    """
    if pooling not in POOLINGS:
        return False
    if source is None or source.model.loaded.served is None:
        return True
    return source.model.loaded.pooling != (pooling,)


def found_by_name(name: str, origin: ModelOrigin) -> str | None:
    """Return what opens a model that an evaluation names, or None where that is not on this machine."""
    name = origin.source or name
    if name == EMBEDDED or Path(name).expanduser().is_dir():
        return name
    # a name that the hub could not have is a ValueError
    with suppress(ValueError):
        if isinstance(try_to_load_from_cache(name, "config.json"), str):
            return name
    return None

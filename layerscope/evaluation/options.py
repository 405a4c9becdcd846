"""The options of `evaluate`."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from layerscope.core import Options
from layerscope.models import LoadOptions, Override


@dataclass(frozen=True)
class Positions:
    """Where states are taken: at which sites and layers, pooled how, and whether layers are mixed too."""

    sites: Sequence[str] | None
    layers: str | Sequence[int]
    pooling: str
    mixes: bool


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions(Options):
    """The options of `evaluate`."""

    model_or_run: Any
    tasks: Any
    out: Path | None
    samples: int | None
    seed: int
    shift: Any
    positions: Positions
    processor: Any
    progress: bool
    load: LoadOptions
    override: Override

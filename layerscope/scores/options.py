"""The options of `scores`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from layerscope.core.options import Options


@dataclass(frozen=True, kw_only=True)
class ScoresOptions(Options):
    """The options of `scores`."""

    results: Any
    min_share: float
    metrics: str | Path | None
    variant: str | None
    first_layer: int
    bootstrap: int
    seed: int

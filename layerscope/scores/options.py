"""The options of `scores`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from layerscope.core import Options


@dataclass(frozen=True, kw_only=True)
class ScoresOptions(Options):
    """The options of `scores`."""

    results: Any
    metrics: str | Path | None

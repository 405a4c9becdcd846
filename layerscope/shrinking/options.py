"""The options of `shrink`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from layerscope.core.options import Options
from layerscope.models.options import LoadOptions, Override


@dataclass(frozen=True, kw_only=True)
class ShrinkOptions(Options):
    """The options of `shrink`."""

    model: Any
    data: Any
    out: Path
    max_loss: float | None
    speed: float | None
    max_mb: float | None
    heal: Any
    minutes: float
    same_space: bool
    text_column: str | None
    label_column: str | None
    samples: int | None
    seed: int
    progress: bool
    load: LoadOptions
    override: Override

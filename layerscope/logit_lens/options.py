"""The options of `lens`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from layerscope.core import Options
from layerscope.models.options import LoadOptions, Override


@dataclass(frozen=True, kw_only=True)
class LensOptions(Options):
    """The options of `lens`."""

    model: Any
    processor: Any
    prompt: str | None
    data: Any
    text_column: str | None
    label_column: str | None
    max_length: int | None
    samples: int
    generate: int
    top: int
    out: Path | None
    progress: bool
    tuned: Path | None
    train: Any
    steps: int
    load: LoadOptions
    override: Override

"""The options of `truncate`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from layerscope.core import Options
from layerscope.models import LoadOptions, Override

FORMATS = ("auto", "transformers", "sentence-transformers", "onnx")
POOLINGS = ("mean", "cls", "last")


@dataclass(frozen=True, kw_only=True)
class TruncateOptions(Options):
    """The options of `truncate`."""

    given: Any
    layer: int | None
    out: Path | None
    format: str
    drop: Sequence[int] | None
    mix: Mapping[Any, float] | None
    dim: int | None
    pooling: str | None
    heal: Any
    minutes: float
    processor: Any
    progress: bool
    load: LoadOptions
    override: Override

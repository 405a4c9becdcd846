"""The options of `compare`."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from layerscope.core import Options


@dataclass(frozen=True, kw_only=True)
class CompareOptions(Options):
    """The options of `compare`."""

    runs: Sequence[Any]
    similarity: Sequence[str] | None
    metrics: Sequence[str] | None
    cka: Sequence[str]
    cosine: Sequence[str]
    pooling: str | None
    site: str | None
    paired: bool
    out: Path | None
    progress: bool

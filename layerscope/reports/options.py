"""The options of `report`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from layerscope.core import Options


@dataclass(frozen=True, kw_only=True)
class ReportOptions(Options):
    """The options of `report`."""

    shown: Any
    out: str | Path | None

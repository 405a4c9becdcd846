"""The options of `reproduce`."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from layerscope.core import Options

Scale = Literal["small", "published", "paper"]
SCALES: tuple[Scale, ...] = get_args(Scale)
YOURS = "yours"
"""What stands for a scale where claims are judged on a model and data that a user names."""


@dataclass(frozen=True, kw_only=True)
class ReproduceOptions(Options):
    """The options of `reproduce`."""

    names: str | Sequence[str] | None
    scale: Scale
    model: str | None
    data: str | None
    out: Path
    data_dir: Path | None
    jobs: int | str
    progress: bool

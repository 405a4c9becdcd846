"""The options of `reproduce`."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from layerscope.core import Options

Scale = Literal["small", "published", "paper"]
SCALES: tuple[Scale, ...] = get_args(Scale)


@dataclass(frozen=True, kw_only=True)
class ReproduceOptions(Options):
    """The options of `reproduce`."""

    names: str | Sequence[str] | None
    scale: Scale
    out: Path
    data_dir: Path | None
    jobs: int | str
    progress: bool

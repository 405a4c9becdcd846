"""The options of `inspect`, and what every verb that loads a model takes of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from layerscope.core.options import Options


@dataclass(frozen=True)
class LoadOptions:
    """How weights are fetched, placed and trusted.

    With `as_stored` the dtype `auto` is the checkpoint's everywhere.
    """

    revision: str | None = None
    dtype: str = "auto"
    device: str = "auto"
    max_memory: Mapping[int | str, int | str] | None = None
    offload: Path | None = None
    parallel: str | None = None
    trust_remote_code: bool = False
    allow_pickle: bool = False
    as_stored: bool = False

    @property
    def spread(self) -> bool:
        """Whether the weights lie on several devices, on the disk, or in several processes."""
        return self.device == "map" or self.parallel is not None


@dataclass(frozen=True)
class Override:
    """What the user sets about the model instead of leaving it to the probe."""

    part: str | None = None
    blocks: str | None = None
    norm: str | None = None


@dataclass(frozen=True, kw_only=True)
class InspectOptions(Options):
    """The options of `inspect`."""

    model: Any
    processor: Any
    data: Any
    load: LoadOptions
    override: Override

"""The options of `extract`; help reads this without torch."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from layerscope.core import Options
from layerscope.models import LoadOptions, Override


@dataclass(frozen=True, kw_only=True)
class ExtractOptions(Options):
    """The options of `extract`."""

    model: Any
    data: Any
    layers: list[int] | str
    out: Path
    labels: Any
    processor: Any
    prompt: str
    site: str
    pooling: str
    tokens: bool
    store_dtype: str
    format: str
    batch_size: int | None
    chunk_rows: int | None
    shard: tuple[int, int] | None
    progress: bool
    command: str
    text_column: str | None
    label_column: str | None
    max_length: int | None
    load: LoadOptions
    override: Override

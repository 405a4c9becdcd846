"""The options of `generate`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from layerscope.core import Options, Reading
from layerscope.models import LoadOptions, Override


@dataclass(frozen=True)
class Sampling:
    """How many tokens are chosen, and how; `top_p` None takes the likeliest."""

    max_new_tokens: int
    top_p: float | None
    temperature: float
    seed: int
    batch_size: int


@dataclass(frozen=True, kw_only=True)
class GenerateOptions(Options):
    """The options of `generate`."""

    model: Any
    prompt: list[str] | None
    data: Any
    layers: list[int] | Literal["all"] | None
    samples: int | Literal["all"]
    prefix: int
    sampling: Sampling
    draft_layer: int | Literal["auto"] | None
    draft_tokens: int | Literal["auto"]
    measure: bool
    processor: Any
    out: Path | None
    progress: bool
    load: LoadOptions
    override: Override
    reading: Reading

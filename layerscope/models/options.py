"""The options of `inspect`, and what every verb that loads a model takes of them."""

from dataclasses import dataclass
from typing import Any

from layerscope.core import Options


@dataclass(frozen=True)
class LoadOptions:
    """How weights are fetched, placed and trusted.

    With `as_stored` the dtype `auto` is the checkpoint's everywhere; with `chat` the tokenizer's chat
    template is around every text.
    """

    revision: str | None = None
    dtype: str = "auto"
    device: str = "auto"
    trust_remote_code: bool = False
    allow_pickle: bool = False
    as_stored: bool = False
    chat: bool = False


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

"""The options of `select`, and the bounds that a choice keeps to."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from layerscope.core import Options
from layerscope.truncation.budget import Budget

RULES = ("best-if-clear", "best")


@dataclass(frozen=True)
class Variant:
    """The model, its revision, site and pooling that are meant where there are several; None is the only one."""

    model: str | None
    revision: str | None
    site: str | None
    pooling: str | None


@dataclass(frozen=True, kw_only=True)
class SelectOptions(Options):
    """The options of `select`."""

    given: Any
    labels: Sequence[Any] | None
    rule: str | None
    budget: Budget
    drop: int | None
    data: Any
    text_column: str | None
    label_column: str | None
    seed: int
    variant: Variant
    tasks: Sequence[str] | None
    cost: bool
    device: str
    out: Path | None
    progress: bool

"""The options of `exits`, and the goal that a threshold is to meet."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from layerscope.core import Loading, Options, Reading
from layerscope.models import LoadOptions, Override


@dataclass(frozen=True)
class Goal:
    """What is to hold with `confidence` (1 − δ): a bound on the share of predictions that differ from the full model's.

    Both are between 0 and 1.
    """

    max_disagreement: float = 0.01
    confidence: float = 0.95

    @property
    def delta(self) -> float:
        """δ, the probability with which the guarantee may fail."""
        return 1 - self.confidence

    def __str__(self) -> str:
        return f"max_disagreement {self.max_disagreement:g} with {percent(self.confidence)} confidence"


def percent(share: float) -> str:
    """Return a share in words, such as "1 %"."""
    return f"{100 * share:.6g} %"


@dataclass(frozen=True, kw_only=True)
class ExitsOptions(Options):
    """The options of `exits`."""

    model: Any
    data: Any
    samples: int | None
    seed: int
    goal: Goal
    batch_size: int | None
    exits: list[int] | None
    threshold: float | None
    min_speedup: float
    prefix: int
    max_new_tokens: int
    draft_tokens: int | Literal["auto"]
    processor: Any
    out: Path | None
    progress: bool
    loading: Loading
    override: Override
    reading: Reading


@dataclass(frozen=True, kw_only=True)
class ModelOptions(Options):
    """How an `ExitModel` is loaded."""

    load: LoadOptions
    override: Override

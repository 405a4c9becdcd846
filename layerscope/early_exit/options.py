"""The options of `exits`, and the goal that a threshold is to meet."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from layerscope.core.errors import LayerscopeError
from layerscope.core.option_kinds import Number, shown
from layerscope.core.options import Loading, Options, Reading
from layerscope.models.options import LoadOptions, Override

GOAL = "Guarantee"
LEAVING = "Leaving"
DRAFTS = "Language models"
FOR_CLASSIFIERS = (
    "max_disagreement",
    "min_accuracy",
    "confidence",
    "criterion",
    "threshold",
)
FOR_LANGUAGE_MODELS = ("prefix", "max_new_tokens", "draft_tokens")
Disagreement = Annotated[float | None, Number(above=0, below=1, such_as="0.01"), GOAL]
Accuracy = Annotated[float | None, Number(above=0, below=1, such_as="0.9"), GOAL]
Confidence = Annotated[float, Number(above=0, below=1, such_as="0.95"), GOAL]
FINEST = 1e-9
"""A goal's distance from 0 and 1 at least; no data set is large enough for less."""


@dataclass(frozen=True)
class Goal:
    """What is to hold with `confidence` (1 − δ): one of two bounds on the risk.

    `max_disagreement` (α) bounds the share of predictions that differ from the full model's, 0.01
    where nothing is given; `min_accuracy` the share that is right, whose risk is 1 − accuracy. Each
    is within 1e-9 … 1 − 1e-9.
    """

    max_disagreement: float | None = None
    min_accuracy: float | None = None
    confidence: float = 0.95

    def __post_init__(self) -> None:
        if self.max_disagreement is not None and self.min_accuracy is not None:
            raise LayerscopeError(
                "`max_disagreement` and `min_accuracy` are two goals: give one of them"
            )
        if self.max_disagreement is None and self.min_accuracy is None:
            object.__setattr__(self, "max_disagreement", 0.01)
        example = 0.01 if self.min_accuracy is None else 0.9
        for name, such_as in ((self.bounded, example), ("confidence", 0.95)):
            value = getattr(self, name)
            if not Number(FINEST, 1 - FINEST).fits(value):
                raise LayerscopeError(
                    f"{name} is {shown(value)}: give a number between 0 and 1, such as {such_as}"
                )
            object.__setattr__(self, name, float(value))

    @property
    def bounded(self) -> str:
        """The name of what is bounded."""
        return "max_disagreement" if self.min_accuracy is None else "min_accuracy"

    @property
    def risk(self) -> float:
        """The largest share of errors that meets the goal."""
        bound: float = getattr(self, self.bounded)
        return bound if self.min_accuracy is None else 1 - bound

    @property
    def delta(self) -> float:
        """δ, the probability with which the guarantee may fail."""
        return 1 - self.confidence

    def __str__(self) -> str:
        bound = getattr(self, self.bounded)
        return f"{self.bounded} {bound:g} with {percent(self.confidence)} confidence"


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
    criterion: str
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
class CalibrateOptions(Options):
    """The options of `calibrate`."""

    goal: Goal


@dataclass(frozen=True, kw_only=True)
class ModelOptions(Options):
    """How an `ExitModel` is loaded."""

    load: LoadOptions
    override: Override

"""What `exits` is asked for, checked before anything is loaded."""

from __future__ import annotations

from dataclasses import dataclass

from layerscope.core.errors import LayerscopeError
from layerscope.early_exit.guarantee import Goal

MAX_DISAGREEMENT = 0.01


@dataclass(frozen=True)
class ExitOptions:
    """Everything that decides which exits and which threshold are chosen; wrong ones raise `LayerscopeError`.

    Without a bound the one on disagreement is 1 %.
    """

    max_disagreement: float | None = None
    min_accuracy: float | None = None
    confidence: float = 0.95
    batch_size: int = 32
    criterion: str = "confidence"
    exits: tuple[int, ...] | None = None
    samples: int = 5000
    min_speedup: float = 1.05
    max_length: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.max_disagreement is not None and self.min_accuracy is not None:
            raise LayerscopeError("max_disagreement and min_accuracy are two goals: give one of them")
        if self.max_disagreement is None and self.min_accuracy is None:
            object.__setattr__(self, "max_disagreement", MAX_DISAGREEMENT)

    @property
    def goal(self) -> Goal:
        """What is to be certified."""
        return Goal(self.max_disagreement, self.min_accuracy, self.confidence)

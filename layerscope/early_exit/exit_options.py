"""What `exits` is asked for, checked before anything is loaded."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from layerscope.core.errors import LayerscopeError
from layerscope.early_exit.criteria import check_criterion
from layerscope.early_exit.guarantee import Goal

SEEDS = 2**32  # what scikit-learn takes
MAX_DISAGREEMENT = 0.01
MOST_SAMPLES = 5000
WHOLE: dict[str, tuple[int, int | None, str]] = {
    "batch_size": (1, None, "1 or more"),
    "samples": (2, None, "2 or more"),
    "max_length": (1, None, "1 or more"),
    "seed": (0, SEEDS - 1, f"0 to {SEEDS - 1}"),
}
"""The least and the most of each whole number, and what to give instead."""
SHARES = {
    "max_disagreement": "a share between 0 and 1, such as 0.01",
    "min_accuracy": "a share between 0 and 1, such as 0.9",
    "confidence": "a share between 0 and 1, such as 0.95",
}


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
    samples: int = MOST_SAMPLES
    min_speedup: float = 1.05
    max_length: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        for name, (least, most, hint) in WHOLE.items():
            _check_whole(name, getattr(self, name), least, most, hint)
        for name, hint in SHARES.items():
            _check_number(name, getattr(self, name), hint, lambda value: 0 < value < 1)
        _check_number("min_speedup", self.min_speedup, "more than 0, such as 1.05", lambda value: 0 < value < math.inf)
        check_criterion(self.criterion)
        if self.max_disagreement is not None and self.min_accuracy is not None:
            raise LayerscopeError("--max-disagreement and --min-accuracy are two bounds: give one of them")
        if self.max_disagreement is None and self.min_accuracy is None:
            object.__setattr__(self, "max_disagreement", MAX_DISAGREEMENT)
        if self.exits is not None:
            object.__setattr__(self, "exits", _exits(self.exits))

    @property
    def goal(self) -> Goal:
        """What is to be certified."""
        return Goal(self.max_disagreement, self.min_accuracy, self.confidence)


def _exits(exits: Sequence[Any]) -> tuple[int, ...]:
    """Return layers in order, each once; whether a model has them only the model can tell."""
    for layer in exits:
        if isinstance(layer, bool) or not isinstance(layer, (int, np.integer)):
            raise LayerscopeError(f"--exits {layer!r} is not a whole number: give layers such as 3,6")
        if layer < 1:
            raise LayerscopeError(f"--exits {layer} is not valid: a sample leaves at layer 1 or later")
    if not exits:
        raise LayerscopeError("--exits names none: give layers such as 3,6, or leave it out")
    return tuple(sorted({int(layer) for layer in exits}))


def _check_whole(name: str, value: Any, least: int, most: int | None, hint: str) -> None:
    if value is None and name == "max_length":
        return
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise LayerscopeError(f"{_option(name)} {value!r} is not a whole number: give {hint}")
    if value < least or (most is not None and value > most):
        raise LayerscopeError(f"{_option(name)} {value} is not valid: give {hint}")


def _check_number(name: str, value: Any, hint: str, fits: Any) -> None:
    if value is None and name in ("max_disagreement", "min_accuracy"):
        return
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise LayerscopeError(f"{_option(name)} {value!r} is not a number: give {hint}")
    if not fits(value):
        raise LayerscopeError(f"{_option(name)} {value:g} is not valid: give {hint}")


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")

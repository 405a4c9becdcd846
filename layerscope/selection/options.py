"""The options of `select`, and the bounds that a choice keeps to."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from layerscope.core.errors import LayerscopeError
from layerscope.core.options import Options

if TYPE_CHECKING:
    from layerscope.truncation.costs import Cost

RULES = ("best-if-clear", "best", "one-standard-error")


@dataclass(frozen=True)
class Bound:
    """A limit on one field of a `Cost`, by the name of its option: the most there may be, or the least."""

    option: str
    field: str
    unit: str
    is_least: bool
    limit: float

    def allows(self, cost: "Cost") -> bool:
        """Return whether a cost is on the right side of the limit."""
        value: float = getattr(cost, self.field)
        return value >= self.limit if self.is_least else value <= self.limit

    def refuse(self, costs: "Sequence[Cost]") -> None:
        """Raise where none of these costs is allowed."""
        if any(map(self.allows, costs)):
            return
        values = [getattr(cost, self.field) for cost in costs]
        if self.is_least:
            is_beyond = "is above what every layer that may be chosen reaches"
            best = f"the most is {max(values, default=0):.4g}"
        else:
            is_beyond = "is below what every layer that may be chosen takes"
            best = f"the least is {min(values, default=math.inf):.4g}"
        raise LayerscopeError(
            f"{self.option} {self.limit:g} {is_beyond}: {best} {self.unit}"
        )


@dataclass(frozen=True)
class Budget:
    """Bounds on the points lost, on milliseconds per sample, speed and megabytes; None is no bound."""

    max_loss: float | None = None
    max_ms: float | None = None
    min_speedup: float | None = None
    max_mb: float | None = None

    @property
    def bounds(self) -> list[Bound]:
        """The bounds on time, speed and size."""
        bounds = []
        if self.max_ms is not None:
            bounds.append(Bound("max_ms", "milliseconds", "ms", False, self.max_ms))
        if self.min_speedup is not None:
            bounds.append(
                Bound("min_speedup", "speedup", "× as fast", True, self.min_speedup)
            )
        if self.max_mb is not None:
            bounds.append(Bound("max_mb", "megabytes", "MB", False, self.max_mb))
        return bounds

    @property
    def within(self) -> str:
        """The bounds on time, speed and size, as they end a sentence; empty where there are none."""
        most = [
            f"{bound.limit:g} {bound.unit}"
            for bound in self.bounds
            if not bound.is_least
        ]
        text = f" within {' and '.join(most)}" if most else ""
        if self.min_speedup is not None:
            text += f" at least {self.min_speedup:g} × as fast"
        return text

    def allows(self, cost: "Cost | None") -> bool:
        """Return whether a depth of this cost is within the bounds on time, speed and size."""
        if cost is None:
            return not self.bounds
        return all(bound.allows(cost) for bound in self.bounds)

    def layers(
        self, layers: Sequence[int], costs: "Mapping[int, Cost]"
    ) -> tuple[int, ...]:
        """Return the layers within the bounds on time, speed and size; raises with what is possible where none is."""
        kept = tuple(layer for layer in layers if self.allows(costs.get(layer)))
        if not kept:
            for bound in self.bounds:
                bound.refuse([costs[layer] for layer in layers if layer in costs])
            raise LayerscopeError(
                f"no layer that may be chosen is{self.within}: allow more of one of them"
            )
        return kept


@dataclass(frozen=True)
class Variant:
    """The model, its revision, site and pooling that are meant where there are several; None is the only one."""

    model: str | None = None
    revision: str | None = None
    site: str | None = None
    pooling: str | None = None


@dataclass(frozen=True, kw_only=True)
class SelectOptions(Options):
    """The options of `select`."""

    given: Any
    labels: Sequence[Any] | None
    rule: str | None
    budget: Budget
    drop: int | None
    data: Any
    seed: int
    variant: Variant
    tasks: Mapping[str, float] | None
    cost: bool
    device: str
    out: Path | None
    progress: bool

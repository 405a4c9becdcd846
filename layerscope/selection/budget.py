"""What a choice may cost and lose, and what every depth costs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from layerscope.core.errors import LayerscopeError

if TYPE_CHECKING:
    from layerscope.truncation.figures import Cost

UNITS = {"max_ms": "milliseconds", "max_mb": "megabytes"}
SHORT = {"max_ms": "ms", "max_mb": "MB"}


@dataclass(frozen=True)
class Budget:
    """At most so many points lost, milliseconds a sample, megabytes; None is no bound."""

    max_loss: float | None = None
    max_ms: float | None = None
    max_mb: float | None = None

    @property
    def needs_costs(self) -> bool:
        """Whether costs must be known."""
        return self.max_ms is not None or self.max_mb is not None

    @property
    def within(self) -> str:
        """The bounds on time and size, as they end a sentence; empty where there are none."""
        bounds = [f"{getattr(self, name):g} {SHORT[name]}" for name in UNITS if getattr(self, name) is not None]
        return f" within {' and '.join(bounds)}" if bounds else ""

    def allows(self, cost: Cost | None) -> bool:
        """Return whether a depth of this cost is within the bounds on time and size."""
        if not self.needs_costs:
            return True
        return cost is not None and all(
            getattr(self, name) is None or getattr(cost, UNITS[name]) <= getattr(self, name) for name in UNITS
        )

    def layers(self, layers: Sequence[int], costs: Mapping[int, Cost]) -> tuple[int, ...]:
        """Return the layers within the bounds on time and size; raises with the least there is where none is."""
        kept = tuple(layer for layer in layers if self.allows(costs.get(layer)))
        if kept:
            return kept
        for name, unit in UNITS.items():
            most = getattr(self, name)
            least = min((getattr(costs[layer], unit) for layer in layers if layer in costs), default=math.inf)
            if most is not None and least > most:
                raise LayerscopeError(
                    f"{name} {most:g} is less than any layer that may be chosen takes: "
                    f"the least is {least:.4g} {SHORT[name]}"
                )
        raise LayerscopeError(f"no layer that may be chosen is{self.within}: allow more of one of them")

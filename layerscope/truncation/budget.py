"""The bounds that a smaller model keeps to; options are checked against them without torch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from layerscope.core import LayerscopeError

if TYPE_CHECKING:
    from layerscope.truncation.costs import Cost


@dataclass(frozen=True)
class Budget:
    """Bounds on the points lost, on milliseconds per sample, speed and megabytes; None is no bound."""

    max_loss: float | None = None
    max_ms: float | None = None
    min_speedup: float | None = None
    max_mb: float | None = None

    @property
    def within(self) -> str:
        """The bounds on time, speed and size, as they end a sentence; empty where there are none."""
        bounds = []
        if self.max_ms is not None:
            bounds.append(f"{self.max_ms:g} ms")
        if self.max_mb is not None:
            bounds.append(f"{self.max_mb:g} MB")
        text = ""
        if bounds:
            text = f" within {' and '.join(bounds)}"
        if self.min_speedup is not None:
            text += f" at least {self.min_speedup:g}× as fast"
        return text

    def allows(self, cost: "Cost | None") -> bool:
        """Return whether a depth of this cost is within the bounds on time, speed and size."""
        if cost is None:
            return not self.within
        is_fast = self.max_ms is None or cost.milliseconds <= self.max_ms
        return is_fast and self.fits(cost.speedup, cost.megabytes)

    def fits(self, speedup: float, megabytes: float) -> bool:
        """Return whether a model this fast and this large is within the bounds on speed and size."""
        is_small = self.max_mb is None or megabytes <= self.max_mb
        gains = self.min_speedup is None or speedup >= self.min_speedup
        return is_small and gains

    def layers(
        self, layers: Sequence[int], costs: "Mapping[int, Cost]"
    ) -> tuple[int, ...]:
        """Return the layers within the bounds on time, speed and size; raises with what is possible where none is."""
        kept = tuple(layer for layer in layers if self.allows(costs.get(layer)))
        if kept:
            return kept
        measured = [costs[layer] for layer in layers]
        raise LayerscopeError(
            f"no layer that may be chosen is{self.within}: they take "
            f"{min(cost.milliseconds for cost in measured):.4g} ms and "
            f"{min(cost.megabytes for cost in measured):.4g} MB or more, and are up to "
            f"{max(cost.speedup for cost in measured):.4g} × as fast"
        )

"""The options of `select`, and the bounds that a choice keeps to."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from layerscope.core.errors import LayerscopeError
from layerscope.core.options import Options

if TYPE_CHECKING:
    from layerscope.truncation.costs import Cost

RULES = ("best-if-clear", "best")


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
            text += f" at least {self.min_speedup:g} × as fast"
        return text

    def allows(self, cost: "Cost | None") -> bool:
        """Return whether a depth of this cost is within the bounds on time, speed and size."""
        if cost is None:
            return not self.within
        is_fast = self.max_ms is None or cost.milliseconds <= self.max_ms
        is_small = self.max_mb is None or cost.megabytes <= self.max_mb
        gains = self.min_speedup is None or cost.speedup >= self.min_speedup
        return is_fast and is_small and gains

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
    tasks: Sequence[str] | None
    cost: bool
    device: str
    out: Path | None
    progress: bool

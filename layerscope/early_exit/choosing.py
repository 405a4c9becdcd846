"""Which exits to check, and whether they pay at all."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from layerscope.early_exit.cost_model import Plan, Prediction, Simulation, Times
from layerscope.early_exit.recorded import Recorded

Exits = tuple[int, ...]
PAYS = 1.05
"""The least speed-up that is worth another way to run a model."""


@dataclass(frozen=True)
class Choice:
    """The exits to check, ascending, the threshold that goes with them, and what they are expected to win.

    No exits, with the threshold inf, are the plain model.
    """

    exits: Exits
    threshold: float
    prediction: Prediction


@dataclass(frozen=True)
class Verdict:
    """Whether an expected speed-up is worth having: as it is told, in hundredths, at least `least`."""

    speedup: float
    least: float = PAYS

    @property
    def pays(self) -> bool:
        """Whether it is."""
        return round(self.speedup, 2) >= self.least

    def __str__(self) -> str:
        return f"{'pays' if self.pays else 'does not pay'}: {self.speedup:.2f}× expected"


def choose_exits(
    recorded: Recorded, plan: Plan, times: Times, allowed: Callable[[Exits], float], *, trims: bool = True
) -> Choice:
    """Return the exits that are expected to be fastest, never slower than none.

    `allowed(exits)` is the threshold these exits may have. From all exits 1 … L − 1 the one is dropped whose loss costs
    least or wins most, until none is left; the fastest set on that way, or the fastest single exit, is chosen: about
    L² / 2 predictions. Raises `LayerscopeError` for a plan without samples.
    """
    simulation = Simulation(recorded, plan, times, trims=trims)

    def priced(exits: Exits) -> Choice:
        threshold = allowed(exits) if exits else math.inf
        return Choice(exits, threshold, simulation.run(exits, threshold))

    def fastest(choices: list[Choice]) -> Choice:
        return min(choices, key=lambda choice: (choice.prediction.seconds, len(choice.exits)))

    current = priced(tuple(range(1, recorded.depth)))
    seen = [priced(()), *(priced((layer,)) for layer in current.exits), current]
    while len(current.exits) > 1:
        current = fastest([priced(_without(current.exits, layer)) for layer in current.exits])
        seen.append(current)
    return fastest(seen)


def _without(exits: Exits, layer: int) -> Exits:
    return tuple(kept for kept in exits if kept != layer)

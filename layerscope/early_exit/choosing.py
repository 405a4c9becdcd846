"""Which exits to check, and whether they pay at all."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import combinations

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
    """Whether a speed-up is worth having: in hundredths, as it is told, at least `least`, expected and measured."""

    speedup: float
    least: float = PAYS
    measured: float = math.nan

    @property
    def pays(self) -> bool:
        """Whether it is."""
        known = [value for value in (self.speedup, self.measured) if not math.isnan(value)]
        return all(round(value, 2) >= self.least for value in known)

    def __str__(self) -> str:
        told = "" if math.isnan(self.measured) else f", {self.measured:.2f}× measured"
        mend = "" if self.pays else "; use the plain model"
        return f"{'pays' if self.pays else 'does not pay'}: {self.speedup:.2f}× expected{told}{mend}"


def choose_exits(
    recorded: Recorded, plan: Plan, times: Times, allowed: Callable[[Exits], float], *, trims: bool = True
) -> Choice:
    """Return the exits that are expected to be fastest, never slower than none.

    `allowed(exits)` is the threshold these exits may have. Of all exits 1 … L − 1 the one is dropped without which the
    rest is fastest, until none is left: about L² / 2 predictions. The fastest set on that way, or the fastest single
    exit, is then bettered by adding, dropping or exchanging one exit as long as that helps.

    Raises:
        LayerscopeError: for a plan without samples.

    """
    simulation = Simulation(recorded, plan, times, trims=trims)

    @cache
    def priced(exits: Exits) -> Choice:
        threshold = allowed(exits) if exits else math.inf
        return Choice(exits, threshold, simulation.run(exits, threshold))

    every = tuple(range(1, recorded.depth))
    best = _fastest(map(priced, ((), every, *combinations(every, 1))))
    current = priced(every)
    while len(current.exits) > 1:
        current = _fastest(map(priced, combinations(current.exits, len(current.exits) - 1)))
        best = _fastest((best, current))
    while (better := _fastest(map(priced, _near(best.exits, every)))) is not best:
        best = better
    return best


def _fastest(choices: Iterable[Choice]) -> Choice:
    return min(choices, key=lambda choice: (choice.prediction.seconds, len(choice.exits)))


def _near(exits: Exits, every: Exits) -> Iterator[Exits]:
    """Yield these exits, and those with one more, one less, or one exchanged for another."""
    others = set(every).difference(exits)
    fewer = tuple(combinations(exits, len(exits) - 1)) if exits else ()
    yield from (exits, *fewer)
    for kept in (exits, *fewer):
        yield from (tuple(sorted((*kept, layer))) for layer in others)

"""What a paper claims and how it is judged, fixed before there is any result."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from layerscope.papers.assets import Asset, Assets
    from layerscope.papers.intervals import Interval
    from layerscope.show.document import TokenGrid
    from layerscope.show.plots import Bars, Boxes, Chart, HeatMap

    Picture = Chart | HeatMap | Boxes | Bars | TokenGrid

Judge = Callable[["Assets"], "Evidence"]
SCALES = ("small", "published", "paper")
Scale = Literal["small", "published", "paper"]
TRACING = "Jiang, Zhou, Zhu: Tracing Representation Progression (ICLR 2025)"
LAYERS = "Skean et al.: Layer by Layer (ICML 2025)"
QUESTIONS = "Questions that readers of the papers asked"


@dataclass(frozen=True)
class Claim:
    """One sentence of a paper as a statistic that lies beyond a threshold, or does not.

    `statistic` says what is measured, and in which unit; `over` what its interval is taken over (seeds, samples, tasks,
    models; "computed" for what has no error). `decided_by` says what would decide it where the number of values would
    not.
    """

    name: str
    sentence: str
    statistic: str
    threshold: float
    direction: Literal["above", "below"]
    over: str
    decided_by: str = ""


@dataclass(frozen=True)
class Printed:
    """A number in print and where it stands; `differs` says why ours is another quantity, if it is."""

    quantity: str
    value: float
    where: str
    differs: str = ""


@dataclass(frozen=True)
class Number:
    """A quantity as computed here; the ends of its interval are None where it has none."""

    quantity: str
    value: float
    low: float | None = None
    high: float | None = None

    @classmethod
    def of(cls, quantity: str, found: "Interval") -> "Number":
        """Return a quantity with its interval."""
        return cls(quantity, found.value, found.low, found.high)


@dataclass(frozen=True)
class Evidence:
    """What a judge found: an interval for each claim by name, numbers, pictures, and sentences about them."""

    intervals: "Mapping[str, Interval]"
    numbers: Sequence[Number] = ()
    plots: "Sequence[Picture]" = ()
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Recipe:
    """A figure, table or theorem: what it claims, what that needs, and the function that judges.

    `scales` has the settings of each scale that the recipe runs at, `lacks` what the other scales are missing. `needs`
    returns the assets of some settings, all of which are made before `judge` reads them. `note` says how data or
    measures differ from the paper's.
    """

    name: str
    paper: str
    title: str
    claims: tuple[Claim, ...]
    judge: Judge
    scales: Mapping[Scale, Any]
    needs: "Callable[[Any], Sequence[Asset]]" = lambda settings: ()
    printed: tuple[Printed, ...] = ()
    lacks: Mapping[Scale, str] = field(default_factory=dict)
    note: str = ""

    @property
    def digest(self) -> str:
        """Hash of what was fixed before any result: claims, thresholds, settings and printed numbers."""
        fixed = [self.name, self.claims, self.printed, {name: str(found) for name, found in self.scales.items()}]
        return hashlib.sha256(json.dumps(fixed, default=vars, sort_keys=True).encode()).hexdigest()[:16]


def recipe(name: str, paper: str, title: str, *claims: Claim, **about: Any) -> Callable[[Judge], Recipe]:
    """Return a decorator that makes a function, which judges these claims, a recipe; `about` are its other fields."""
    return lambda judge: Recipe(name, paper, title, claims, judge, **about)

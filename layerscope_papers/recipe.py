"""What a paper claims and how it is judged, fixed before there is any result."""

import hashlib
import json
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Self

from layerscope.show import Bars, Chart, HeatMap, TokenGrid
from layerscope_papers.assets import Asset, Assets
from layerscope_papers.intervals import Interval
from layerscope_papers.options import Scale

Picture = Chart | HeatMap | Bars | TokenGrid
Judge = Callable[[Assets], "Evidence"]
WRITTEN: dict[str, dict[str, Any]] = tomllib.loads(
    Path(__file__).with_name("claims.toml").read_text("utf-8")
)
"""What `claims.toml` says of each recipe, in the order of the papers."""
PAPERS = {
    "T": "Jiang, Zhou, Zhu: Tracing Representation Progression (ICLR 2025)",
    "L": "Skean et al.: Layer by Layer (ICML 2025)",
}
"""By the first letter of a name."""
ANYWHERE: Mapping[Scale, None] = {"small": None, "published": None, "paper": None}
"""The scales of what is computed, and rests on no model."""


@dataclass(frozen=True)
class Claim:
    """One sentence of a paper as a statistic that lies beyond a threshold, or does not.

    Attributes:
        name: short, one of its recipe.
        sentence: what the paper says, in our words.
        statistic: what is measured, and in which unit.
        threshold: what the whole interval must lie beyond.
        direction: on which side.
        over: what the interval is taken over: seeds, samples, tasks, models; "computed" for what
            has no error.
        decided_by: what would decide it where the number of values would not.

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
    """A number in print.

    Attributes:
        quantity: what it is, as the judge names its own.
        value: as printed.
        where: section, figure or table.
        differs: why ours is another quantity, empty where both compare.

    """

    quantity: str
    value: float
    where: str
    differs: str = ""


@dataclass(frozen=True)
class Number:
    """A quantity as computed here.

    Attributes:
        quantity: what it is, with its unit.
        value: the number.
        low: lower end of its interval, None where it has none.
        high: upper end of its interval, None where it has none.

    """

    quantity: str
    value: float
    low: float | None = None
    high: float | None = None

    @classmethod
    def of(cls, quantity: str, interval: Interval) -> Self:
        """Return a quantity with its interval."""
        return cls(quantity, interval.value, interval.low, interval.high)


@dataclass(frozen=True)
class Evidence:
    """What a judge found.

    Attributes:
        intervals: the statistic of each claim, by the claim's name.
        numbers: quantities beside the claims, for the table of numbers.
        plots: pictures, the first the recipe's own.
        notes: sentences about the evidence.
        inapplicable: by claim, what the models at hand would have to have for it to apply.

    """

    intervals: Mapping[str, Interval]
    numbers: Sequence[Number] = ()
    plots: Sequence[Picture] = ()
    notes: Sequence[str] = ()
    inapplicable: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Recipe:
    """A figure, table or theorem: what it claims, what that needs, and the function that judges.

    Attributes:
        name: as the user gives it.
        paper: the paper it is of.
        title: what is claimed, in one sentence.
        claims: the sentences that are judged.
        judge: returns the evidence that the assets hold.
        scales: settings of each scale that the recipe runs at.
        needs: returns the assets of some settings, all of which are made before `judge` reads them.
        printed: numbers in print.
        lacks: what the other scales are missing.
        local: returns the data sets that must lie in the folder that a user names.
        yours: which settings are others for a model and texts that a user names, None where the
            recipe takes none.
        note: how data or measures differ from the paper's.

    """

    name: str
    paper: str
    title: str
    claims: tuple[Claim, ...]
    judge: Judge
    scales: Mapping[str, Any]
    needs: Callable[[Any], Sequence[Asset]] = lambda settings: ()
    printed: tuple[Printed, ...] = ()
    lacks: Mapping[Scale, str] = field(default_factory=dict)
    local: Callable[[Any], Sequence[str]] = lambda settings: ()
    yours: Mapping[str, Any] | None = None
    note: str = ""

    @property
    def digest(self) -> str:
        """Hash of what was fixed before any result: claims, thresholds, settings and printed numbers."""
        fixed = [
            self.name,
            self.claims,
            self.printed,
            {name: written(settings) for name, settings in self.scales.items()},
        ]
        return hashlib.sha256(
            json.dumps(fixed, default=vars, sort_keys=True).encode()
        ).hexdigest()[:16]


def written(settings: Any) -> str:
    """Return settings with all their fields, the number of seeds too, which the names of assets leave out."""
    return str(getattr(settings, "__dict__", settings or ""))


def recipe(
    name: str, scales: Mapping[Any, Any], **about: Any
) -> Callable[[Judge], Recipe]:
    """Return a decorator that makes a function the judge of what is written of a recipe; `about` are other fields."""
    entry = WRITTEN[name]
    texts = {field: entry[field] for field in ("title", "note") if field in entry}
    claims = tuple(
        _claim(claim, about, entry.get("over", ""))
        for claim, about in entry["claims"].items()
    )
    lacks = {"published": "values that the authors released"} | entry.get("lacks", {})
    derived = {
        "printed": tuple(Printed(**number) for number in entry.get("printed", ())),
        "lacks": {scale: what for scale, what in lacks.items() if scale not in scales},
    }
    return lambda judge: Recipe(
        name,
        PAPERS[name[0]],
        claims=claims,
        judge=judge,
        scales=scales,
        **texts,
        **derived | about,
    )


def _claim(name: str, about: Mapping[str, Any], over: str) -> Claim:
    direction: Literal["above", "below"] = "above" if "above" in about else "below"
    return Claim(
        name,
        about["sentence"],
        about["statistic"],
        about[direction],
        direction,
        about.get("over", over),
        about.get("decided_by", ""),
    )

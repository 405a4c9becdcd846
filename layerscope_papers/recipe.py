"""What a paper claims and how it is judged, fixed before there is any result, and the intervals that decide."""

import hashlib
import json
import math
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
import pandas as pd

from layerscope.show import Bars, Chart, HeatMap, TokenGrid
from layerscope_papers.assets import Asset, Assets
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
    "Q": "Questions that readers of the papers asked",
}
"""By the first letter of a name."""
ANYWHERE: Mapping[Scale, None] = {"small": None, "published": None, "paper": None}
"""The scales of what is computed, and rests on no model."""
FEWEST = 3
"""Fewer values than this decide nothing."""
LEVEL = 0.95
RESAMPLES = 2000


@dataclass(frozen=True)
class Claim:
    """One sentence of a paper as a statistic that lies beyond a threshold, or does not.

    `statistic` says what is measured, and in which unit; `over` what its interval is taken over
    (seeds, samples, tasks, models; "computed" for what has no error). `decided_by` says what would
    decide it where the number of values would not.
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
class Interval:
    """A statistic and its 95 % interval over `n` values; the ends are NaN where there are too few."""

    value: float
    low: float
    high: float
    n: int


@dataclass(frozen=True)
class Number:
    """A quantity as computed here; the ends of its interval are None where it has none."""

    quantity: str
    value: float
    low: float | None = None
    high: float | None = None

    @classmethod
    def of(cls, quantity: str, found: Interval) -> Self:
        """Return a quantity with its interval."""
        return cls(quantity, found.value, found.low, found.high)


@dataclass(frozen=True)
class Evidence:
    """What a judge found: an interval for each claim by name, numbers, pictures, and sentences about them.

    `inapplicable` says why claims are about something that the models at hand do not have.
    """

    intervals: Mapping[str, Interval]
    numbers: Sequence[Number] = ()
    plots: Sequence[Picture] = ()
    notes: Sequence[str] = ()
    inapplicable: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Recipe:
    """A figure, table or theorem: what it claims, what that needs, and the function that judges.

    `scales` has the settings of each scale that the recipe runs at, `lacks` what the other scales
    are missing. `needs` returns the assets of some settings, all of which are made before `judge`
    reads them. `yours` returns the settings for a model and data that a user names, None where the
    recipe takes none. `note` says how data or measures differ from the paper's.
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
    yours: Callable[[str, str], Any] | None = None
    note: str = ""

    @property
    def digest(self) -> str:
        """Hash of what was fixed before any result: claims, thresholds, settings and printed numbers."""
        fixed = [
            self.name,
            self.claims,
            self.printed,
            {name: str(found) for name, found in self.scales.items()},
        ]
        return hashlib.sha256(
            json.dumps(fixed, default=vars, sort_keys=True).encode()
        ).hexdigest()[:16]


def recipe(
    name: str, scales: Mapping[Any, Any], **about: Any
) -> Callable[[Judge], Recipe]:
    """Return a decorator that makes a function the judge of what is written of a recipe; `about` are other fields."""
    known = WRITTEN[name]
    texts = {field: known[field] for field in ("title", "note") if field in known}
    claims = tuple(
        _claim(claim, own, known.get("over", ""))
        for claim, own in known["claims"].items()
    )
    lacks = {"published": "values that the authors released"} | known.get("lacks", {})
    written = {
        "printed": tuple(Printed(**own) for own in known.get("printed", ())),
        "lacks": {scale: what for scale, what in lacks.items() if scale not in scales},
    }
    return lambda judge: Recipe(
        name,
        PAPERS[name[0]],
        claims=claims,
        judge=judge,
        scales=scales,
        **texts,
        **written | about,
    )


def _claim(name: str, own: Mapping[str, Any], over: str) -> Claim:
    direction: Literal["above", "below"] = "above" if "above" in own else "below"
    return Claim(
        name,
        own["sentence"],
        own["statistic"],
        own[direction],
        direction,
        own.get("over", over),
        own.get("decided_by", ""),
    )


def exact(value: float) -> Interval:
    """Return a number that is computed, and not estimated.

    >>> exact(0.5)
    Interval(value=0.5, low=0.5, high=0.5, n=1)
    """
    return Interval(float(value), float(value), float(value), 1)


def mean(values: Sequence[float]) -> Interval:
    """Return the mean of independent values with Student's t interval.

    >>> found = mean([1.0, 2.0, 3.0])
    >>> round(found.low, 2), round(found.high, 2)
    (-0.48, 4.48)
    """
    from scipy.stats import t

    known = np.asarray(values, dtype=np.float64)
    known = known[np.isfinite(known)]
    if not len(known):
        return Interval(math.nan, math.nan, math.nan, 0)
    if len(known) < FEWEST:
        return Interval(float(known.mean()), math.nan, math.nan, len(known))
    reach = (
        t.ppf((1 + LEVEL) / 2, len(known) - 1)
        * known.std(ddof=1)
        / math.sqrt(len(known))
    )
    return Interval(
        float(known.mean()),
        float(known.mean() - reach),
        float(known.mean() + reach),
        len(known),
    )


def paired(one: Iterable[float], other: Iterable[float]) -> Interval:
    """Return the mean difference of pairs, one minus the other, with its interval."""
    return mean([float(a - b) for a, b in zip(one, other, strict=True)])


def share(count: int, n: int) -> Interval:
    """Return a share of independent samples with Wilson's interval.

    >>> found = share(9, 10)
    >>> round(found.low, 2), round(found.high, 2)
    (0.6, 0.98)
    """
    from scipy.stats import binomtest

    if n < FEWEST:
        return Interval(count / n if n else math.nan, math.nan, math.nan, n)
    ends = binomtest(count, n).proportion_ci(LEVEL, method="wilson")
    return Interval(count / n, float(ends.low), float(ends.high), n)


def slope(x: Sequence[float], y: Sequence[float]) -> Interval:
    """Return the slope of a straight line through points with Student's t interval.

    >>> slope([1, 2, 3, 4], [2.0, 4.1, 5.9, 8.0]).low > 1.5
    True
    """
    from scipy.stats import linregress, t

    if len(x) < FEWEST:
        return Interval(math.nan, math.nan, math.nan, len(x))
    line = linregress(x, y)
    reach = t.ppf((1 + LEVEL) / 2, len(x) - 2) * line.stderr
    return Interval(
        float(line.slope), float(line.slope - reach), float(line.slope + reach), len(x)
    )


def bootstrap(
    rows: npt.NDArray[np.float64],
    statistic: Callable[[npt.NDArray[np.float64]], Any],
    seed: int = 0,
) -> Interval:
    """Return a statistic of rows `[n, …]` with the percentile interval over resampled rows."""
    if len(rows) < FEWEST:
        return Interval(float(statistic(rows)), math.nan, math.nan, len(rows))
    draws = np.random.default_rng(seed)
    found = [
        float(statistic(rows[draws.integers(len(rows), size=len(rows))]))
        for _ in range(RESAMPLES)
    ]
    low, high = np.nanquantile(found, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(float(statistic(rows)), float(low), float(high), len(rows))


def before_last(curves: Iterable[pd.Series]) -> Interval:
    """Return the mean of curves by layer over the layers before the last, with its interval over curves."""
    return mean([float(curve.iloc[:-1].mean()) for curve in curves])


def at_last(curves: Iterable[pd.Series]) -> Interval:
    """Return the mean of curves by layer at the last layer, with its interval over curves."""
    return mean([float(curve.iloc[-1]) for curve in curves])

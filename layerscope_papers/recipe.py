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
class Interval:
    """A statistic and its 95 % interval.

    Attributes:
        value: the statistic.
        low: lower end, NaN where there are too few values.
        high: upper end, NaN where there are too few values.
        n: values that the interval is over.

    """

    value: float
    low: float
    high: float
    n: int


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
        yours: returns the settings for a model and data that a user names, None where the recipe
            takes none.
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
    yours: Callable[[str, str], Any] | None = None
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
    finite = np.asarray(values, dtype=np.float64)
    finite = finite[np.isfinite(finite)]
    if not len(finite):
        return Interval(math.nan, math.nan, math.nan, 0)
    value = float(finite.mean())
    n = len(finite)
    if n < FEWEST:
        return Interval(value, math.nan, math.nan, n)
    error = float(finite.std(ddof=1)) / math.sqrt(n)
    return _around(value, error, freedom=n - 1, n=n)


def _around(value: float, error: float, *, freedom: int, n: int) -> Interval:
    """Return Student's t interval around an estimate with a standard error."""
    from scipy.stats import t

    reach = float(t.ppf((1 + LEVEL) / 2, freedom)) * error
    return Interval(value, value - reach, value + reach, n)


def paired(one: Iterable[float], other: Iterable[float]) -> Interval:
    """Return the mean difference of pairs, one minus the other, with its interval.

    >>> paired([3.0, 5.0, 4.0], [1.0, 3.0, 2.0])
    Interval(value=2.0, low=2.0, high=2.0, n=3)
    """
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
    from scipy.stats import linregress

    n = len(x)
    if n < FEWEST:
        return Interval(math.nan, math.nan, math.nan, n)
    line = linregress(x, y)
    return _around(float(line.slope), float(line.stderr), freedom=n - 2, n=n)


def bootstrap(
    rows: npt.NDArray[np.float64],
    statistic: Callable[[npt.NDArray[np.float64]], Any],
    seed: int = 0,
) -> Interval:
    """Return a statistic of rows `[n, …]` with the percentile interval over resampled rows.

    >>> bootstrap(np.array([1.0, 1.0, 1.0, 1.0]), np.mean)
    Interval(value=1.0, low=1.0, high=1.0, n=4)
    """
    if len(rows) < FEWEST:
        return Interval(float(statistic(rows)), math.nan, math.nan, len(rows))
    draws = np.random.default_rng(seed)
    statistics = [
        float(statistic(rows[draws.integers(len(rows), size=len(rows))]))
        for _ in range(RESAMPLES)
    ]
    low, high = np.nanquantile(statistics, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(float(statistic(rows)), float(low), float(high), len(rows))


def early(curve: pd.Series) -> float:
    """Return the mean of a curve by layer over the layers before the last.

    >>> early(pd.Series([1.0, 2.0, 9.0]))
    1.5
    """
    return float(curve.iloc[:-1].mean())


def before_last(curves: Iterable[pd.Series]) -> Interval:
    """Return the mean of curves by layer over the layers before the last, with its interval over curves.

    >>> before_last([pd.Series([1.0, 2.0]), pd.Series([3.0, 4.0])]).value
    2.0
    """
    return mean(list(map(early, curves)))


def at_last(curves: Iterable[pd.Series]) -> Interval:
    """Return the mean of curves by layer at the last layer, with its interval over curves.

    >>> at_last([pd.Series([1.0, 2.0]), pd.Series([3.0, 4.0])]).value
    3.0
    """
    return mean([float(curve.iloc[-1]) for curve in curves])

"""From the tables of a run to named curves and boxes."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from layerscope.core.margin import INTERVAL
from layerscope.runs.registry import (
    CHOICES,
    COUNTS,
    KNOWN,
    Metric,
    Needs,
    about,
    named,
    rank,
    scale,
    unit_apart,
)
from layerscope.show.numbers import NIL, error, number
from layerscope.show.plain import pooling_name

if TYPE_CHECKING:
    from layerscope.runs.run import Run

Group = Literal["quality", "similarity", "decisions"]
Values = npt.NDArray[np.float64]

GROUPS: dict[str, Group] = {"pairs": "similarity", "lens": "decisions", "labels": "decisions"}
KINDS: dict[Needs, str] = {
    "labels": "What labels say of each layer",
    "lens": "What the model's head reads from each layer",
    "tokens": "Tokens within each sample",
    "pooled": "Vectors of all samples",
    "views": "Views of the same sample",
    "path": "The path from layer to layer",
}
"""Titles of the parts of a group that is too wide for one table, or too long for one heading."""
TABLE_ALONE = [name for name, metric in KNOWN.items() if not metric.curve]
SIMILAR = 0.9
HALF = 0.5


@dataclass(frozen=True)
class Curve:
    """One metric by layer: arrays of one length, accuracies and shares in 0 … 1.

    `final` is the value after the final norm where `values` are taken before it, else None; a curve
    at the site `normed` has it as its last value. `n` is the most samples of a layer, `n_least` the
    fewest, `n_skipped` the most that a layer leaves out. `stands_out` is a layer ≥ 1, or None where
    none does.
    """

    metric: str
    title: str
    variant: str | None
    pooling: str | None
    site: str
    group: Group
    layers: tuple[int, ...]
    values: Values
    stderr: Values
    final: float | None
    final_stderr: float | None
    n: int
    n_least: int
    n_skipped: int
    stands_out: int | None

    @property
    def unit(self) -> str:
        """Name the unit, an empty string where there is none."""
        return about(self.metric).unit

    @property
    def scale(self) -> float:
        """Factor from the values to the unit they are shown in."""
        return scale(self.metric)

    @property
    def log(self) -> bool:
        """Whether only a logarithmic axis shows its shape."""
        return about(self.metric).log

    @cached_property
    def differs(self) -> bool:
        """Whether any two layers differ by more than their errors, where these are unknown by more than a hundredth."""
        known = np.flatnonzero(np.isfinite(self.values))
        if len(known) < 2:
            return bool(len(known))
        low, high = (int(known[pick(self.values[known])]) for pick in (np.argmin, np.argmax))
        (a, b), errors = self.values[[low, high]], self.stderr[[low, high]]
        reach = INTERVAL * math.hypot(*errors)
        return bool(b - a > (reach if math.isfinite(reach) else 0.01 * max(abs(a), abs(b))))

    def at(self, layer: int) -> tuple[float, float]:
        """Return value and standard error at a layer, NaN where there is none."""
        if layer not in self.layers:
            return math.nan, math.nan
        i = self.layers.index(layer)
        return float(self.values[i]), float(self.stderr[i])

    def last(self) -> tuple[float, float]:
        """Return value and standard error at the model's last layer, after its norm where it has one."""
        if self.final is not None:
            return self.final, math.nan if self.final_stderr is None else self.final_stderr
        return self.at(self.layers[-1])


def curves(run: "Run") -> list[Curve]:
    """Return every metric of a run that has a value at each layer; of pairs, the similarity to the last layer.

    One curve for each metric, variant and pooling, in the order of the registry; what was never
    measured is absent.
    """
    table = run.at()
    table = table[~table["site"].isin({column.site for column in run.sublayers})]
    pairs = table["layer_b"].notna()
    to_last = (table["layer_b"] == run.depth) & (table["site_b"] == run.final)
    by_layer = table[
        (~pairs | to_last.fillna(False).astype(bool)) & ~table["metric"].isin(TABLE_ALONE)
    ]
    groups = by_layer.groupby(["metric", "variant", "pooling"], sort=False, dropna=False)
    return sorted((_curve(rows, run) for _, rows in groups), key=lambda c: rank(c.metric))


def inside(run: "Run") -> list[Curve]:
    """Return the curves of a run's sub-layers, one for each metric, variant, pooling and site; none without them.

    With them stands `raw`, the blocks' output, and the sites are in the order in which a block
    shows them.
    """
    sites = [*dict.fromkeys(column.site for column in run.sublayers)]
    table = run.at()
    measured = table.loc[table["site"].isin(sites), "metric"].unique()
    rows = table[
        table["metric"].isin(measured)
        & table["site"].isin([*sites, "raw"])
        & table["layer_b"].isna()
    ]
    kept, order = rows[~rows["metric"].isin(TABLE_ALONE)], [*sites, "raw"]
    groups = kept.groupby(["metric", "variant", "pooling", "site"], sort=False, dropna=False)
    found = (_curve(part, run) for _, part in groups)
    return sorted(
        found, key=lambda c: (rank(c.metric), c.variant or "", c.pooling or "", order.index(c.site))
    )


def panels(curves: Iterable[Curve]) -> dict[tuple[str, str | None], list[Curve]]:
    """Return curves by (metric, variant): what belongs into one picture, in the order given."""
    found: dict[tuple[str, str | None], list[Curve]] = {}
    for curve in curves:
        found.setdefault((curve.metric, curve.variant), []).append(curve)
    return found


def site_name(site: str) -> str:
    """Return a site as a person reads it."""
    return "block output" if site == "raw" else site.replace("_", " ")


def steps_text(panel: list[Curve]) -> str | None:
    """Return by how much each residual addition changes a metric on average; None where there is one addition a block.

    Additions are distinguished from the stream before them: a block's input, or what follows the
    addition before.
    """
    stream = [c for c in panel if c.site.endswith("residual")] + [
        c for c in panel if c.site == "raw"
    ]
    if len(stream) < 2:
        return None
    found, unit = [], unit_apart(panel[0].metric)
    before = {layer + 1: stream[-1].at(layer)[0] for layer in stream[-1].layers}
    for curve in stream:
        after = {layer: curve.at(layer)[0] for layer in curve.layers}
        changes = [after[layer] - before[layer] for layer in after if layer in before]
        known = [change for change in changes if math.isfinite(change)]
        if known:
            change = number(panel[0].scale * float(np.mean(known)))
            found.append(
                " ".join(filter(None, (change, unit, f"up to the {site_name(curve.site)}")))
            )
        before |= after
    return (
        f"Change of {panel[0].title} inside a block, on average: {', '.join(found)}."
        if found
        else None
    )


def which(curve: Curve, beside: Iterable[Curve]) -> list[str]:
    """Return the variant and the pooling of a curve, where those beside it have others or it is not the default."""
    beside, names = list(beside), []
    unusual = not CHOICES.keys().isdisjoint((curve.variant or "").split(","))
    if (len({c.variant for c in beside}) > 1 or unusual) and curve.variant:
        names.append(curve.variant)
    if len({c.pooling for c in beside}) > 1:
        names.append(pooling_name(curve.pooling))
    return names


def _curve(rows: pd.DataFrame, run: "Run") -> Curve:
    rows = rows.sort_values("layer")
    first = rows.iloc[0]
    metric, variant = (
        str(first["metric"]),
        first["variant"] if isinstance(first["variant"], str) else None,
    )
    raw, after = rows[rows["site"] == "raw"], rows[rows["site"] == run.final]
    body = next(part for part in (raw, after, rows[rows["site"] == first["site"]]) if len(part))
    end = after.iloc[-1] if len(raw) and len(after) and run.final != "raw" else None
    layers = tuple(int(layer) for layer in body["layer"])
    values, site = body["value"].to_numpy(dtype=np.float64), str(body["site"].iloc[0])
    return Curve(
        metric=metric,
        title=named(metric, variant),
        variant=variant,
        pooling=first["pooling"] if isinstance(first["pooling"], str) else None,
        site=site,
        group=GROUPS.get(about(metric).needs, "quality"),
        layers=layers,
        values=values,
        stderr=body["stderr"].to_numpy(dtype=np.float64),
        final=None if end is None else float(end["value"]),
        final_stderr=None if end is None else float(end["stderr"]),
        n=int(body["n"].max()),
        n_least=int(body["n"].min()),
        n_skipped=int(body["n_skipped"].max()),
        stands_out=_stands_out(metric, layers, values, run.depth if site == run.final else None),
    )


def _stands_out(
    metric: str, layers: tuple[int, ...], values: Values, reference: int | None
) -> int | None:
    candidates = {layer: float(v) for layer, v in zip(layers, values, strict=True) if layer >= 1}
    if about(metric).needs == "pairs":
        # of a distance, what it falls short of 1
        alike = (
            {layer: 1.0 - v for layer, v in candidates.items()} if about(metric).low else candidates
        )
        start = _holds_from(alike, SIMILAR)
        return None if start == reference else start
    if metric == "saturated":
        return _holds_from(candidates, HALF)
    known = {layer: v for layer, v in candidates.items() if math.isfinite(v)}
    if metric in COUNTS or not known or (len(known) > 1 and len(set(known.values())) == 1):
        return None
    return (min if about(metric).low else max)(known, key=known.__getitem__)


def _holds_from(values: dict[int, float], level: float) -> int | None:
    """Return the first layer from which every value is known and above a level."""
    above = list(takewhile(lambda layer: values[layer] > level, sorted(values, reverse=True)))
    return above[-1] if above else None


def value_text(of: Curve | Metric, value: float, stderr: float = math.nan, digits: int = 3) -> str:
    """Return value, standard error and unit of a point of a curve or metric, as a sentence says it."""
    if of.unit == "%" and math.isfinite(value):
        shown = f"{100 * value:.1f}" + (f" ±{100 * stderr:.1f}" if stderr >= NIL else "")
        return f"{shown} %"
    return " ".join(part for part in (number(value, digits), error(stderr), of.unit) if part)

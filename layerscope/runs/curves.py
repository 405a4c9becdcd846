"""From the tables of a run to named curves by layer."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pandas as pd

from layerscope.runs.registry import (
    CHOICES,
    COUNTS,
    KNOWN,
    Metric,
    about,
    named,
    rank,
    scale,
)
from layerscope.show.numbers import NIL, error, number
from layerscope.show.plain import pooling_name

if TYPE_CHECKING:
    from layerscope.runs.run import Run

Values = npt.NDArray[np.float64]
TABLE_ALONE = [name for name, metric in KNOWN.items() if not metric.curve]
SIMILAR = 0.9
HALF = 0.5
KEYS = ["metric", "variant", "pooling"]


@dataclass(frozen=True)
class Curve:
    """One metric by layer: arrays of one length, accuracies and shares in 0 … 1.

    `final` is the value after the final norm where `values` are taken before it, else None; a curve
    at the site `normed` has it as its last value. `n` is the most samples of a layer, `n_skipped`
    the most that a layer leaves out. `stands_out` is a layer ≥ 1, or None where none does.
    """

    metric: str
    variant: str | None
    pooling: str | None
    site: str
    layers: tuple[int, ...]
    values: Values
    stderr: Values
    final: float | None
    final_stderr: float
    n: int
    n_skipped: int
    stands_out: int | None

    @property
    def title(self) -> str:
        """The metric's title, and before it the choices of its variant that are not the default."""
        return named(self.metric, self.variant)

    @property
    def about(self) -> Metric:
        """The metric's record."""
        return about(self.metric)

    @property
    def unit(self) -> str:
        """Name the unit, an empty string where there is none."""
        return self.about.unit

    @property
    def scale(self) -> float:
        """Factor from the values to the unit they are shown in."""
        return scale(self.metric)

    def at(self, layer: int) -> tuple[float, float]:
        """Return value and standard error at a layer, NaN where there is none."""
        if layer not in self.layers:
            return math.nan, math.nan
        i = self.layers.index(layer)
        return float(self.values[i]), float(self.stderr[i])

    def last(self) -> tuple[float, float]:
        """Return value and standard error at the model's last layer, after its norm where it has one."""
        if self.final is None:
            return self.at(self.layers[-1])
        return self.final, self.final_stderr


def curves(run: "Run") -> list[Curve]:
    """Return every metric of a run that has a value at each layer; of pairs, the similarity to the last layer.

    One curve for each metric, variant and pooling, in the order of the registry; what was never
    measured is absent.
    """
    table = run.at()
    table = table[~table["site"].isin({column.site for column in run.sublayers})]
    to_last = (table["layer_b"] == run.depth) & (table["site_b"] == run.final)
    is_curve = table["layer_b"].isna() | to_last.fillna(False).astype(bool)
    rows = table[is_curve & ~table["metric"].isin(TABLE_ALONE)]
    groups = rows.groupby(KEYS, sort=False, dropna=False)
    return sorted(
        (_curve(part, run) for _, part in groups), key=lambda curve: rank(curve.metric)
    )


def inside(run: "Run") -> list[Curve]:
    """Return the curves of a run's sub-layers, one for each metric, variant, pooling and site; none without them.

    With them stands `raw`, the blocks' output, and the sites are in the order in which a block
    shows them.
    """
    order = [*dict.fromkeys(column.site for column in run.sublayers), "raw"]
    table = run.at()
    measured = table.loc[table["site"].isin(order[:-1]), "metric"].unique()
    rows = table[table["metric"].isin(measured) & ~table["metric"].isin(TABLE_ALONE)]
    rows = rows[rows["site"].isin(order) & rows["layer_b"].isna()]
    groups = rows.groupby([*KEYS, "site"], sort=False, dropna=False)

    def position(curve: Curve) -> tuple[int, str, str, int]:
        variant, pooling = curve.variant or "", curve.pooling or ""
        return rank(curve.metric), variant, pooling, order.index(curve.site)

    return sorted((_curve(part, run) for _, part in groups), key=position)


def panels(curves: Iterable[Curve]) -> dict[tuple[str, str | None], list[Curve]]:
    """Return curves by (metric, variant): what belongs into one picture, in the order given."""
    panels: dict[tuple[str, str | None], list[Curve]] = {}
    for curve in curves:
        panels.setdefault((curve.metric, curve.variant), []).append(curve)
    return panels


def site_name(site: str) -> str:
    """Return a site as a person reads it."""
    return "block output" if site == "raw" else site.replace("_", " ")


def heading(curve: Curve, beside: Sequence[Curve]) -> str:
    """Return a curve's title, with its variant and pooling where others of its metric have another."""
    alike = [other for other in beside if other.metric == curve.metric]
    parts = [curve.title]  # which names the choices of its variant
    if len({other.variant for other in alike}) > 1 and curve.variant:
        parts += [part for part in curve.variant.split(",") if part not in CHOICES]
    if len({other.pooling for other in alike}) > 1:
        parts.append(pooling_name(curve.pooling))
    return ", ".join(parts)


def counted(curve: Curve, run: "Run") -> str:
    """Return on how many samples (of a language model's lens: tokens) a curve rests, and how many it skips."""
    by_token = curve.about.needs == "lens" and run.info["model"].get("language_model")
    skipped = f"{curve.n_skipped:,} skipped" if curve.n_skipped else "none skipped"
    return f"{curve.n:,} {'tokens' if by_token else 'samples'}, {skipped}"


def _curve(rows: pd.DataFrame, run: "Run") -> Curve:
    rows = rows.sort_values("layer")
    metric, variant, pooling = (_text(rows[key].iloc[0]) for key in KEYS)
    raw, after = rows[rows["site"] == "raw"], rows[rows["site"] == run.final]
    body = next(part for part in (raw, after, rows) if len(part))
    body = body[body["site"] == body["site"].iloc[0]]
    end = after.iloc[-1] if len(raw) and len(after) and run.final != "raw" else None
    layers, site = tuple(map(int, body["layer"])), str(body["site"].iloc[0])
    values = body["value"].to_numpy(dtype=np.float64)
    reference = run.depth if site == run.final else None
    return Curve(
        metric=str(metric),
        variant=variant,
        pooling=pooling,
        site=site,
        layers=layers,
        values=values,
        stderr=body["stderr"].to_numpy(dtype=np.float64),
        final=None if end is None else float(end["value"]),
        final_stderr=math.nan if end is None else float(end["stderr"]),
        n=int(body["n"].max()),
        n_skipped=int(body["n_skipped"].max()),
        stands_out=_stands_out(str(metric), layers, values, reference),
    )


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _stands_out(
    metric: str, layers: tuple[int, ...], values: Values, reference: int | None
) -> int | None:
    """Return the layer from 1 on with the highest value, or the lowest where that is what counts.

    A similarity to the last layer stands out where it becomes and stays high; `reference` is that
    layer itself.
    """
    record = about(metric)
    candidates = {
        layer: float(v) for layer, v in zip(layers, values, strict=True) if layer >= 1
    }
    if record.needs == "pairs":
        # of a distance, what it falls short of 1
        likeness = {
            layer: 1.0 - v if record.low else v for layer, v in candidates.items()
        }
        start = _holds_from(likeness, SIMILAR)
        return None if start == reference else start
    if metric == "saturated":
        return _holds_from(candidates, HALF)
    finite = {layer: v for layer, v in candidates.items() if math.isfinite(v)}
    is_flat = len(finite) > 1 and len(set(finite.values())) == 1
    if metric in COUNTS or not finite or is_flat:
        return None
    return (min if record.low else max)(finite, key=finite.__getitem__)


def _holds_from(values: dict[int, float], level: float) -> int | None:
    """Return the first layer from which every value is known and above a level."""
    above = list(
        takewhile(lambda layer: values[layer] > level, sorted(values, reverse=True))
    )
    return above[-1] if above else None


def value_text(of: Curve | Metric, value: float, stderr: float = math.nan) -> str:
    """Return value, standard error and unit of a point of a curve or metric, as a sentence says it."""
    if of.unit == "%" and math.isfinite(value):
        shown = f"{100 * value:.1f}" + (
            f" ±{100 * stderr:.1f}" if stderr >= NIL else ""
        )
        return f"{shown} %"
    return " ".join(part for part in (number(value), error(stderr), of.unit) if part)

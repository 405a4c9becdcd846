"""From the tables of a run to named curves by layer.

A table has a row for each metric, variant, pooling, site and layer. A curve is what belongs to one
line of a chart, as "cosine_similarity, centered, mean pooling" at layers 0 to 6. The value after
the model's final norm belongs to it, and is no further layer: it stands beside the last one.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from layerscope.runs.registry import (
    CHOICES,
    COUNTS,
    KNOWN,
    Metric,
    about,
    named,
    rank,
)
from layerscope.runs.run import Run
from layerscope.show.numbers import NIL, error, number
from layerscope.show.plain import pooling_name

Values = NDArray[np.float64]
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

    >>> from layerscope.runs.curves import curves
    >>> curve = curves(layerscope.open_run("runs/minilm"))[0]
    >>> curve.title, curve.layers, curve.final
    ('prompt entropy', (0, 1, 2, 3, 4, 5, 6), None)
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


def curves(run: Run) -> list[Curve]:
    """Return every metric of a run that has a value at each layer; of pairs, the similarity to the last layer.

    One curve for each metric, variant and pooling, in the order of the registry; what was never
    measured is absent.
    """
    table = run.at()
    inside = table["site"].isin({column.site for column in run.sublayers})
    to_last = (table["layer_b"] == run.depth) & (table["site_b"] == run.final)
    is_curve = table["layer_b"].isna() | to_last.fillna(False).astype(bool)
    groups = _by(table[is_curve & ~inside], KEYS)
    measured = [_curve(rows, run) for _, rows in groups]
    return sorted(measured, key=lambda curve: rank(curve.metric))


def inside(run: Run) -> list[Curve]:
    """Return the curves of a run's sub-layers, one for each metric, variant, pooling and site; none without them.

    With them stands `raw`, the blocks' output, and the sites are in the order in which a block
    shows them.
    """
    sites = [*dict.fromkeys(column.site for column in run.sublayers)]
    order = [*sites, "raw"]
    table = run.at()
    measured = table.loc[table["site"].isin(sites), "metric"]
    is_shown = table["metric"].isin(measured) & table["site"].isin(order)
    rows = table[is_shown & table["layer_b"].isna()]
    groups = _by(rows, [*KEYS, "site"])
    of_sites = [_curve(part, run) for _, part in groups]

    return sorted(
        of_sites,
        key=lambda curve: (
            rank(curve.metric),
            curve.variant or "",
            curve.pooling or "",
            order.index(curve.site),
        ),
    )


def _by(rows: pd.DataFrame, names: list[str]) -> Any:
    """Return the rows of each curve."""
    rows = rows[~rows["metric"].isin(TABLE_ALONE)]
    return rows.groupby(names, sort=False, dropna=False)


def panels(curves: Iterable[Curve]) -> dict[tuple[str, str | None], list[Curve]]:
    """Return curves by (metric, variant): what belongs into one picture, in the order given.

    Curves of one metric at several poolings are lines of one chart.
    """
    panels: dict[tuple[str, str | None], list[Curve]] = {}
    for curve in curves:
        panels.setdefault((curve.metric, curve.variant), []).append(curve)
    return panels


def site_name(site: str) -> str:
    """Return a site as a person reads it.

    >>> site_name("raw"), site_name("attention_out")
    ('block output', 'attention out')
    """
    if site == "raw":
        return "block output"
    return site.replace("_", " ")


def heading(curve: Curve, beside: Sequence[Curve]) -> str:
    """Return a curve's title, with its variant and pooling where others of its metric have another."""
    alike = [other for other in beside if other.metric == curve.metric]
    parts = [curve.title]  # which names the choices of its variant
    if curve.variant and len({other.variant for other in alike}) > 1:
        parts += [part for part in curve.variant.split(",") if part not in CHOICES]
    if len({other.pooling for other in alike}) > 1:
        parts.append(pooling_name(curve.pooling))
    return ", ".join(parts)


def counted(curve: Curve, run: Run) -> str:
    """Return on how many samples a curve rests, and how many it skips; of a language model's lens these are tokens."""
    noun = "samples"
    if curve.about.needs == "lens" and run.info["model"].get("language_model"):
        noun = "tokens"
    skipped = f"{curve.n_skipped:,}" if curve.n_skipped else "none"
    return f"{curve.n:,} {noun}, {skipped} skipped"


def _curve(rows: pd.DataFrame, run: Run) -> Curve:
    """Return the curve of the rows of a metric: those at the site raw, else the final one, else whichever there is."""
    rows = rows.sort_values("layer")
    first = rows.iloc[0]
    sites = [*rows["site"]]
    site = next((site for site in ("raw", run.final) if site in sites), sites[0])
    body = rows[rows["site"] == site]
    reference = None
    final = None
    final_stderr = math.nan
    if site == run.final:
        reference = run.depth
    elif site == "raw" and run.final in sites:
        after = rows[rows["site"] == run.final]
        final, final_stderr = map(float, after[["value", "stderr"]].iloc[-1])
    layers = tuple(map(int, body["layer"]))
    values = body["value"].to_numpy(dtype=np.float64)
    return Curve(
        metric=first["metric"],
        variant=text_or_none(first["variant"]),
        pooling=text_or_none(first["pooling"]),
        site=site,
        layers=layers,
        values=values,
        stderr=body["stderr"].to_numpy(dtype=np.float64),
        final=final,
        final_stderr=final_stderr,
        n=int(body["n"].max()),
        n_skipped=int(body["n_skipped"].max()),
        stands_out=_stands_out(first["metric"], layers, values, reference),
    )


def text_or_none(value: object) -> str | None:
    """Return a text of a table; None where its cell is empty."""
    return value if isinstance(value, str) else None


def _stands_out(
    metric: str, layers: tuple[int, ...], values: Values, reference: int | None
) -> int | None:
    """Return the layer from 1 on with the highest value, or the lowest where that is what counts.

    A similarity to the last layer stands out where it becomes and stays high; `reference` is that
    layer itself. Nothing stands out of counts, and where all layers are alike.
    """
    record = about(metric)
    by_layer = pd.Series(values, layers)
    by_layer = by_layer[by_layer.index >= 1]
    if record.needs == "pairs":
        if record.low:  # of a distance, what it falls short of 1
            by_layer = 1.0 - by_layer
        start = _holds_from(by_layer, SIMILAR)
        return None if start == reference else start
    if metric == "saturated":
        return _holds_from(by_layer, HALF)
    by_layer = by_layer[np.isfinite(by_layer)]
    is_flat = len(by_layer) > 1 and by_layer.nunique() == 1
    if metric in COUNTS or by_layer.empty or is_flat:
        return None
    return int(by_layer.idxmin() if record.low else by_layer.idxmax())


def _holds_from(by_layer: pd.Series, level: float) -> int | None:
    """Return the first layer from which every value is known and above a level.

    >>> _holds_from(pd.Series([0.95, 0.2, 0.91, 0.99], index=[1, 2, 3, 4]), level=0.9)
    3
    """
    above = by_layer.sort_index(ascending=False).gt(level).astype(int).cummin()
    if not above.any():
        return None
    return int(above.index[above.sum() - 1])


def value_text(metric: Metric, value: float, stderr: float) -> str:
    """Return a metric's value with its standard error and unit, as a sentence says it.

    >>> value_text(about("linear_probe"), 0.8125, 0.034), value_text(about("prompt_entropy"), 1.5, math.nan)
    ('81.2 ±3.4 %', '1.50 nats')
    """
    text = number(value)
    beside = error(stderr)
    if metric.unit == "%" and math.isfinite(value):
        text = f"{100 * value:.1f}"
        beside = ""
        if stderr >= NIL:
            beside = f"±{100 * stderr:.1f}"
    return " ".join(filter(None, (text, beside, metric.unit)))

"""What a pair of runs comes to: which layers are most alike, and where metrics differ.

Layer 0 is shown everywhere and never a candidate: no sentence or mark names it as the most alike or
the furthest apart where a layer from 1 on could be.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from layerscope.runs.curves import Values
from layerscope.runs.registry import about, capital, named, rank, scale, titled
from layerscope.show.numbers import number
from layerscope.show.plain import plain

if TYPE_CHECKING:
    from layerscope.comparison.comparison import Comparison, Member

SURE = 2.0
"""A difference of more standard errors than this counts as one."""


@dataclass(frozen=True)
class Pair:
    """The first run beside another: A and B."""

    comparison: "Comparison"
    a: "Member"
    b: "Member"

    @property
    def name(self) -> str:
        """What B is called beside A."""
        return f"{plain(self.b.name)} against {plain(self.a.name)}"

    @cached_property
    def differences(self) -> pd.DataFrame:
        """The rows of differences."""
        rows = self.comparison.named
        return rows[(rows["kind"] == "difference") & (rows["run_b"] == self.b.name)]

    def square(self, metric: str, variant: str) -> pd.DataFrame:
        """Return the similarity of every layer of A with every layer of B."""
        return self.comparison.similarity(self.a.name, self.b.name, metric, variant)


def pairs(comparison: "Comparison") -> list[Pair]:
    """Return every run beside the first."""
    first, *others = comparison.runs
    return [Pair(comparison, first, other) for other in others]


def alike(square: pd.DataFrame, metric: str) -> Values:
    """Return numbers that are the larger the more alike two layers are: distances turned around."""
    values: Values = square.to_numpy(dtype=np.float64)
    return -values if about(metric).low else values


def most_alike(square: pd.DataFrame, metric: str) -> list[int | None]:
    """Return for each row which column is most like it, layer 0 of either aside; None where none has a value."""
    near = alike(square, metric)
    candidates: Any = np.isfinite(near) & np.outer(
        square.index != 0, square.columns != 0
    )
    most = np.where(candidates, near, -np.inf).argmax(axis=1).tolist()
    return [
        column if any(row) else None
        for column, row in zip(most, candidates, strict=True)
    ]


def headline(pair: Pair) -> str:
    """Return the answer in one line: how alike layers are, how far apart in depth the most similar ones lie."""
    metric, variant = pair.comparison.forms[0]
    square = pair.square(metric, variant)
    matched = [
        (i, j) for i, j in enumerate(most_alike(square, metric)) if j is not None
    ]
    a, b = plain(pair.a.name), plain(pair.b.name)
    if not matched:
        return f"No similarity of layers is defined: the states of {b} do not vary."
    values = np.array([square.iat[i, j] for i, j in matched])
    depths, depths_b = _depths(square.index, pair.a), _depths(square.columns, pair.b)
    away = np.mean([abs(depths[i] - depths_b[j]) for i, j in matched])
    return (
        f"{capital(named(metric, variant))} of each layer of {a} with the layer of {b} most like it: "
        f"{shown(values.mean())} on average, {shown(values.min())} to {shown(values.max())}, "
        f"{100 * away:.0f} % of the depth away; the last layers {shown(square.iat[-1, -1])}."
    )


def _depths(layers: pd.Index, member: "Member") -> list[float]:
    return [
        1.0 if layer == "final" else float(layer) / member.depth for layer in layers
    ]


def by_metric(rows: pd.DataFrame) -> Iterator[tuple[str, str, pd.DataFrame]]:
    """Yield each metric, in the order of the registry, its title (with one of several variants), and its rows."""
    several = rows.groupby("metric")["variant"].nunique(dropna=False) > 1
    rows = rows.sort_values("metric", key=lambda names: names.map(rank), kind="stable")
    for (metric, variant), rows_of_metric in rows.groupby(
        ["metric", "variant"], sort=False, dropna=False
    ):
        variant = variant if isinstance(variant, str) else None
        yield metric, capital(titled(metric, variant, several[metric])), rows_of_metric


def largest(rows: pd.DataFrame) -> Any:
    """Return the index of the largest difference beyond its error, layer 0 aside; None where there is none."""
    sure = rows["value"].abs() > SURE * rows["stderr"]
    sure &= (rows["layer"] > 0) & (rows["layer_b"] > 0)
    return rows.loc[sure, "value"].abs().idxmax() if sure.any() else None


def signed(value: float) -> str:
    """Return a difference with its sign."""
    if not math.isfinite(value) or number(value) == "0":
        return number(value)
    return f"{'+' if value > 0 else '−'}{number(abs(value))}"


def shown(value: float) -> str:
    """Return a similarity."""
    # + 0.0: no minus before nothing
    return f"{round(value, 2) + 0.0:.2f}" if math.isfinite(value) else "–"


def by_checkpoint(comparison: "Comparison") -> Iterator[tuple[str, str, pd.DataFrame]]:
    """Yield metric, title and map of layers by checkpoints: similarities to the first one lead."""
    rows = comparison.named
    heads = {
        run.name: f"{run.step:,}" if run.step else plain(run.name)
        for run in comparison.runs
    }
    first, second, *_ = heads
    for metric, variant in comparison.forms:
        same = (rows["kind"] == "similarity") & (rows["a"] == rows["b"])
        of_form = rows[same & (rows["metric"] == metric) & (rows["variant"] == variant)]
        title = f"{capital(named(metric, variant))} to the first checkpoint"
        yield metric, title, _wide(of_form, "value").rename(columns=heads)
    for metric, title, of_metric in by_metric(rows[rows["kind"] == "difference"]):
        values = _wide(of_metric, "value_b")
        values.insert(
            0, first, of_metric[of_metric["run_b"] == second].set_index("a")["value_a"]
        )
        yield (
            metric,
            f"{title} by checkpoint",
            scale(metric) * values.rename(columns=heads),
        )


def _wide(rows: pd.DataFrame, value: str) -> pd.DataFrame:
    """Return rows as layers by checkpoints, both in order of appearance."""
    wide = rows.pivot(index="a", columns="run_b", values=value)
    return wide.loc[rows["a"].unique(), rows["run_b"].unique()]

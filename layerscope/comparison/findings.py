"""What a pair of runs comes to: which layers are most alike, and where metrics differ.

Layer 0 is shown everywhere and never a candidate: no sentence or mark names it as the most alike or
the furthest apart where a layer from 1 on could be.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from layerscope.comparison.comparison import Comparison, Member, layer_map
from layerscope.comparison.steps import NUMBER
from layerscope.core import capital
from layerscope.core.margin import differs
from layerscope.runs.curves import Values
from layerscope.runs.registry import about, named, rank, titled
from layerscope.show.numbers import error, number
from layerscope.show.plain import plain

SURE = 2.0
"""A difference of more standard errors than this counts as one."""


@dataclass(frozen=True)
class Pair:
    """The first run beside another: A and B."""

    comparison: Comparison
    a: Member
    b: Member

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


def pairs(comparison: Comparison) -> list[Pair]:
    """Return every run beside the first."""
    first, *others = comparison.runs
    return [Pair(comparison, first, other) for other in others]


def alike(square: pd.DataFrame, metric: str) -> Values:
    """Return numbers that are the larger the more alike two layers are: distances turned around.

    >>> alike(pd.DataFrame([[0.0, 0.25]]), "angular_distance")
    array([[-0.  , -0.25]])
    """
    values: Values = square.to_numpy(dtype=np.float64, copy=True)
    if about(metric).low:
        return -values
    return values


def most_alike(square: pd.DataFrame, metric: str) -> list[int | None]:
    """Return for each row which column is most like it, by position; None where none has a value.

    Layer 0 is not looked at, be it a row or a column.

    >>> square = pd.DataFrame([[1.0, 0.9, 0.1], [0.9, 0.2, 0.8], [0.1, 0.7, 0.6]])
    >>> most_alike(square, "cka")
    [None, 2, 1]
    """
    near = alike(square, metric)
    near[square.index == 0] = np.nan
    near[:, square.columns == 0] = np.nan
    most = np.nan_to_num(near, nan=-np.inf).argmax(axis=1)
    has_value = np.isfinite(near).any(axis=1)
    columns: Any = np.where(has_value, most.astype(object), None)
    return list(columns)


def headline(pair: Pair) -> str:
    """Return the answer in one line: how alike layers are, how far apart in depth the most similar ones lie."""
    metric, variant = pair.comparison.forms[0]
    square = pair.square(metric, variant)
    nearest = pd.Series(most_alike(square, metric), dtype="Int64").dropna()
    a = plain(pair.a.name)
    b = plain(pair.b.name)
    if nearest.empty:
        return f"No similarity of layers is defined: the states of {b} do not vary."
    rows = nearest.index
    columns = nearest.to_numpy(dtype=int)
    values = square.to_numpy()[rows, columns]
    depths = _depths(square.index, pair.a)[rows]
    depths_b = _depths(square.columns, pair.b)[columns]
    away = np.abs(depths - depths_b).mean()
    return (
        f"{capital(named(metric, variant))} of each layer of {a} with the layer of {b} most like it: "
        f"{shown(values.mean())} on average, {shown(values.min())} to {shown(values.max())}, "
        f"{100 * away:.0f} % of the depth away; the last layers {shown(square.iat[-1, -1])}."
    )


def steps(pair: Pair) -> Iterator[str]:
    """Yield whether the deeper model spreads the steps of the other one over more blocks, where that was measured."""
    frame = pair.comparison.frame
    rows = frame[(frame["kind"] == "steps") & (frame["run_b"] == pair.b.name)]
    rows = rows[rows["value"].notna()]
    if rows.empty:
        return
    nearest = rows.loc[rows["value"].idxmin()]
    a = plain(pair.a.name)
    b = plain(pair.b.name)
    deep, shallow = (a, b) if pair.a.depth > pair.b.depth else (b, a)
    gain = float(nearest["value"])
    stderr = float(nearest["stderr"])
    verdict = f"it is undecided whether {deep} spreads"
    if differs(gain, stderr):
        verdict = f"{deep} spreads" if gain > 0 else f"{deep} does not spread"
    choice = str(nearest["variant"])
    if choice == NUMBER:
        choice = f"{choice} or the last"
    share = f"R² {shown(nearest['value_b'])}"
    other = f"{shown(nearest['value_a'])} ({signed(gain)} {error(stderr)})"
    yield (
        f"By linear maps {verdict} the steps of {shallow} over more blocks: layers of {b} are read from those of {a} "
        f"at the same share of the depth with {share}, from {choice} with {other}."
    )


def _depths(layers: pd.Index, member: Member) -> Values:
    """Return each layer's share of the depth; that of the final one is 1."""
    numbers = pd.Series(layers, dtype=object).mask(layers == "final", member.depth)
    depths: Values = numbers.to_numpy(dtype=np.float64)
    return depths / member.depth


def by_metric(rows: pd.DataFrame) -> Iterator[tuple[str, str, pd.DataFrame]]:
    """Yield each metric, its title and its rows, in the order of the registry.

    Where a metric has several variants, each is yielded by itself, and the title names it.
    """
    several = rows.groupby("metric")["variant"].nunique(dropna=False) > 1
    rows = rows.sort_values("metric", key=lambda names: names.map(rank), kind="stable")
    keys = rows["metric"], rows["variant"].fillna("")
    for (metric, variant), rows_of_metric in rows.groupby(list(keys), sort=False):
        title = titled(metric, variant, several[metric])
        yield metric, capital(title), rows_of_metric


def largest(rows: pd.DataFrame) -> Any:
    """Return the index of the largest difference beyond its error, layer 0 aside; None where there is none.

    It counts where it is more than `SURE` standard errors.

    >>> rows = pd.DataFrame({"layer": [0, 1, 2], "layer_b": [0, 1, 2], "value": [9.0, -2.0, 1.0], "stderr": 0.1})
    >>> int(largest(rows)), largest(rows.assign(stderr=9.0))
    (1, None)
    """
    sure = rows["value"].abs() > SURE * rows["stderr"]
    sure &= (rows["layer"] > 0) & (rows["layer_b"] > 0)
    if not sure.any():
        return None
    return rows.loc[sure, "value"].abs().idxmax()


def signed(value: float) -> str:
    """Return a difference with its sign.

    >>> signed(0.25), signed(-0.25), signed(0.0)
    ('+0.250', '−0.250', '0')
    """
    text = number(value)
    if value > 0 and text != "0":
        return f"+{text}"
    return text.replace("-", "−", 1)


def shown(value: float) -> str:
    """Return a similarity with two decimals.

    >>> shown(0.999), shown(-0.001), shown(math.nan)
    ('1.00', '0.00', '–')
    """
    if math.isnan(value):
        return "–"
    # + 0.0: no minus before nothing
    return f"{round(value, 2) + 0.0:.2f}"


def by_checkpoint(comparison: Comparison) -> Iterator[tuple[str, str, pd.DataFrame]]:
    """Yield metric, title and map of layers by checkpoints.

    First come the similarities of each layer to itself in the first checkpoint, then the values of
    the metrics that are compared.
    """
    rows = comparison.named
    heads = {run.name: plain(run.name) for run in comparison.runs}
    first, second, *_ = heads
    for metric, variant in comparison.forms:
        same_layer = (rows["kind"] == "similarity") & (rows["a"] == rows["b"])
        same_form = (rows["metric"] == metric) & (rows["variant"] == variant)
        title = f"{capital(named(metric, variant))} to the first checkpoint"
        values = layer_map(rows[same_layer & same_form], "run_b", "value")
        yield metric, title, values.rename(columns=heads)
    for metric, title, metric_rows in by_metric(rows[rows["kind"] == "difference"]):
        values = layer_map(metric_rows, "run_b", "value_b")
        in_second = metric_rows[metric_rows["run_b"] == second]
        values.insert(0, first, in_second.set_index("a")["value_a"])
        values = about(metric).scale * values.rename(columns=heads)
        yield metric, f"{title} by checkpoint", values

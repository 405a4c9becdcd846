"""What a comparison says in sentences and small tables, the same in a terminal and on the page.

Layer 0 is shown everywhere and never a candidate: no sentence or mark names it as the most alike or the furthest apart
where a layer from 1 on could be.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from layerscope.runs.curves import Values
from layerscope.runs.registry import about, capital, rank, titled, unit_apart
from layerscope.show.numbers import NIL, error, number
from layerscope.show.plain import plain

if TYPE_CHECKING:
    from layerscope.comparison.comparison import Comparison, Member

SURE = 2.0
"""A difference of more standard errors than this counts as one."""


@dataclass(frozen=True)
class Pair:
    """The first run beside another: A and B."""

    comparison: Comparison
    number: int

    @property
    def a(self) -> Member:
        """The first run."""
        return self.comparison.runs[0]

    @property
    def b(self) -> Member:
        """The other run."""
        return self.comparison.runs[self.number]

    @property
    def name(self) -> str:
        """What B is called beside A."""
        return f"{plain(self.b.name)} against {plain(self.a.name)}"

    def labels(self, row: Any) -> tuple[int | str, int | str]:
        """Return the labels of the layers that a row compares."""
        return layer_label(row["layer"], row["site"], self.a), layer_label(row["layer_b"], row["site_b"], self.b)

    def square(self, metric: str) -> pd.DataFrame:
        """Return the similarity of every layer of A with every layer of B."""
        return self.comparison.similarity(self.a.name, self.b.name, metric)

    def depth_of(self, layer: int | str, member: Member) -> float:
        """Return how deep a layer lies, 0 … 1."""
        return 1.0 if layer == "final" else float(layer) / member.depth

    def beside(self, square: pd.DataFrame) -> list[int]:
        """Return for each layer of A the index of the layer of B at the same depth, or nearest to it."""
        depths = np.array([self.depth_of(layer, self.b) for layer in square.columns])
        found = [
            len(depths) - 1 if layer == "final" else int(np.abs(depths - self.depth_of(layer, self.a)).argmin())
            for layer in square.index
        ]
        return found[:-1] + [len(depths) - 1]  # the last layers of both, after the norm where there is one


def pairs(comparison: Comparison) -> list[Pair]:
    """Return every run beside the first."""
    return [Pair(comparison, number) for number in range(1, len(comparison.runs))]


def best(square: pd.DataFrame, metric: str) -> list[tuple[int, float] | None]:
    """Return for each layer of A the index of the most similar layer of B, and how similar; None where none is.

    Layer 0 of either is no candidate.
    """
    values, found = square.to_numpy(), []
    candidates = [layer != 0 for layer in square.columns]
    for layer, line, near in zip(square.index, values, alike(square, metric), strict=True):
        known = np.isfinite(near) & candidates
        at = int(np.where(known, near, -np.inf).argmax()) if layer != 0 and known.any() else None
        found.append(None if at is None else (at, float(line[at])))
    return found


def alike(square: pd.DataFrame, metric: str) -> Values:
    """Return numbers that are the larger the more alike two layers are: distances turned around."""
    values: Values = square.to_numpy()
    return -values if about(metric).low else values


def headline(pair: Pair) -> str:
    """Return the answer in one line: which layers are most alike, and the last ones."""
    metric = pair.comparison.similarities[0]
    square = pair.square(metric)
    inside = square.loc[[x for x in square.index if x != 0], [x for x in square.columns if x != 0]]
    values = alike(inside, metric)
    if not np.isfinite(values).any():
        return f"No similarity of layers is defined: the states of {plain(pair.b.name)} do not vary."
    equal = np.argwhere(values >= np.nanmax(values) - NIL)
    i, j = equal[-1]  # of several the deepest: a truncated model has all its layers in common
    return (
        f"Most alike: {layer_name(inside.index[i])} of {plain(pair.a.name)} and {layer_name(inside.columns[j])} of "
        f"{plain(pair.b.name)}, {about(metric).title} {shown(float(inside.iloc[i, j]))}; the last layers "
        f"{shown(float(square.iloc[-1, -1]))}."
    )


def sentences(pair: Pair) -> tuple[str, ...]:
    """Return what a reader should know beside the headline, a sentence each."""
    return (*(_diagonal(pair, metric) for metric in pair.comparison.similarities), *_apart(pair))


def _diagonal(pair: Pair, metric: str) -> str:
    square = pair.square(metric)
    values, same = square.to_numpy(), pair.beside(square)
    along = [values[i, j] for i, j in enumerate(same) if square.index[i] != 0 and math.isfinite(values[i, j])]
    far = [
        abs(pair.depth_of(square.columns[found[0]], pair.b) - pair.depth_of(layer, pair.a))
        for layer, found in zip(square.index, best(square, metric), strict=True)
        if found is not None
    ]
    if not along or not far:
        return f"{about(metric).title}: not defined at any depth."
    return (
        f"{capital(about(metric).title)} at the same depth, layers 1 and up: {shown(float(np.mean(along)))} on "
        f"average, from {shown(min(along))} to {shown(max(along))}; the layer most like one lies "
        f"{100 * float(np.mean(far)):.0f} % of the depth away on average."
    )


def _apart(pair: Pair) -> Iterator[str]:
    """Yield where each metric with a standard error differs most, and which ones do not."""
    nowhere = []
    for metric, _, rows in by_metric(differences(pair)):
        known = rows[rows["stderr"].notna() & rows["value"].notna()]
        sure = known[known["value"].abs() > SURE * known["stderr"]]
        if len(sure):
            inside = candidates(sure)
            row = sure.loc[inside["value"].abs().idxmax()] if len(inside) else sure.iloc[0]
            values = (number(scale_of(metric) * float(row[name])) for name in ("value_b", "value_a"))
            where = " and ".join(map(layer_name, dict.fromkeys(pair.labels(row))))
            yield (
                f"{capital(titled(metric))} differs {'most' if len(inside) else 'only'} at {where}: "
                f"{difference_text(row)} ({' against '.join(values)}{', paired by sample' if row['paired'] else ''})."
            )
        elif len(known):
            nowhere.append(about(metric).title)
    if nowhere:
        yield f"Nowhere apart by more than {SURE:.0f} standard errors: {', '.join(dict.fromkeys(nowhere))}."


def by_metric(rows: pd.DataFrame) -> Iterator[tuple[str, str | None, pd.DataFrame]]:
    """Yield each metric and variant with its rows; a variant is None where the metric has no other."""
    groups = list(rows.groupby(["metric", "variant"], sort=False, dropna=False))
    metrics = [metric for (metric, _), _ in groups]
    for (metric, variant), own in groups:
        yield metric, variant if metrics.count(metric) > 1 and isinstance(variant, str) else None, own


def candidates(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of differences without those of layer 0."""
    return rows[(rows["layer"] > 0) & (rows["layer_b"] > 0)]


def differences(pair: Pair) -> pd.DataFrame:
    """Return the rows of differences of a pair, in the order metrics are shown in."""
    rows = pair.comparison.frame
    rows = rows[(rows["kind"] == "difference") & (rows["run_b"] == pair.b.name)]
    return rows.assign(rank=[rank(name) for name in rows["metric"]]).sort_values("rank", kind="stable")


def difference_text(row: Any) -> str:
    """Return a difference with its sign, standard error and unit."""
    scale = scale_of(row["metric"])
    value, stderr = scale * float(row["value"]), scale * float(row["stderr"])
    return " ".join(part for part in (signed(value), error(stderr), unit_apart(row["metric"])) if part)


def layer_label(layer: int, site: str, member: Member) -> int | str:
    """Return a layer's name among those of a run: its number, "final" after the norm."""
    return "final" if site == member.final != "raw" and int(layer) == member.depth else int(layer)


def order(layer: int | str, member: Member) -> float:
    """Return where a layer stands among those of a run, `final` behind the last."""
    return member.depth + 0.5 if layer == "final" else float(layer)


def layer_labels(rows: pd.DataFrame, member: Member, end: str = "") -> list[int | str]:
    """Return the `layer_label` of every row, of the other run with `end` "_b"."""
    return [layer_label(*at, member) for at in zip(rows[f"layer{end}"], rows[f"site{end}"], strict=True)]


def scale_of(metric: str) -> float:
    """Return the factor from a metric's values to the unit they are shown in."""
    return 100.0 if about(metric).unit == "%" else 1.0


def signed(value: float) -> str:
    """Return a difference with its sign."""
    if not math.isfinite(value) or number(value) == "0":
        return number(value)
    return f"{'+' if value > 0 else '−'}{number(abs(value))}"


def shown(value: float) -> str:
    """Return a similarity."""
    return f"{round(value, 2) + 0.0:.2f}" if math.isfinite(value) else "–"  # + 0.0: no minus before nothing


def layer_name(layer: int | str) -> str:
    """Return a layer as a sentence names it."""
    return "the final layer" if layer == "final" else f"layer {layer}"


def checkpoints(comparison: Comparison) -> list[str]:
    """Return the column heads of a map by checkpoint: steps where they are known, else the names of the runs."""
    return [plain(m.name) if m.step is None else f"{m.step:,}" for m in comparison.runs]


def maps(comparison: Comparison) -> Iterator[tuple[str, str, pd.DataFrame]]:
    """Yield the metric, title and map of layers by checkpoints: similarities to the last and the one before first."""
    frame = comparison.frame
    names = [member.name for member in comparison.runs]
    counterparts = frame[frame["kind"] == "counterpart"]
    before = {name: names[max(0, i - 1)] for i, name in enumerate(names)}
    for metric in comparison.similarities:
        rows = counterparts[counterparts["metric"] == metric]
        title = about(metric).title
        yield metric, f"{title} to the last checkpoint", _map(comparison, rows[rows["run_b"] == names[-1]])
        previous = rows[rows["run_b"] == rows["run"].map(before)]
        yield metric, f"{title} to the checkpoint before", _map(comparison, previous[previous["run"] != names[0]])
    values = frame[frame["kind"] == "value"]
    for metric, variant, rows in sorted(
        by_metric(values), key=lambda own: (rank(own[0]), own[1] is None, own[1] or "")
    ):
        yield metric, capital(titled(metric, variant)), _map(comparison, rows)


def _map(comparison: Comparison, rows: pd.DataFrame) -> pd.DataFrame:
    """Return values with a row for each layer and a column for each checkpoint, in their order."""
    wide = rows.assign(at=layer_labels(rows, comparison.runs[0])).pivot(index="at", columns="run", values="value")
    layers = sorted(wide.index, key=lambda layer: (layer == "final", layer if layer != "final" else 0))
    return wide.reindex(index=layers, columns=[m.name for m in comparison.runs if m.name in wide.columns])

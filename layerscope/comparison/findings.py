"""What a comparison says in sentences and small tables, the same in a terminal and on the page.

Layer 0 is shown everywhere and never a candidate: no sentence or mark names it as the most alike or
the furthest apart where a layer from 1 on could be.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import pandas as pd

from layerscope.core.errors import count
from layerscope.runs.curves import Values
from layerscope.runs.registry import about, capital, named, rank, scale, titled, unit_apart
from layerscope.show.numbers import error, number
from layerscope.show.plain import plain

if TYPE_CHECKING:
    from layerscope.comparison.comparison import Comparison, Member

STRENGTHS = ((0.8, "strong"), (0.5, "moderate"), (-math.inf, "weak"))
"""Words for the mean similarity of layers that are most alike, from which value on."""
SURE = 2.0
"""A difference of more standard errors than this counts as one."""
Layer: TypeAlias = int | str


class Match(NamedTuple):
    """A layer of A, the layer of B `most` like it (None: none is), and the one at the `same` depth or nearest to it."""

    layer: Layer
    most: Layer | None
    most_value: float
    same: Layer
    same_value: float
    away: float
    """How far apart in depth it and the most similar one lie, 0 … 1."""


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

    @property
    def towers(self) -> bool:
        """Whether the two are towers of one model, the layers of each compared with each other too."""
        return "within" in set(self.comparison.frame["kind"])

    @cached_property
    def differences(self) -> pd.DataFrame:
        """The rows of differences, in the order metrics are shown in."""
        rows = self.comparison.named
        rows = rows[(rows["kind"] == "difference") & (rows["run_b"] == self.b.name)]
        return rows.sort_values("metric", key=lambda names: names.map(rank), kind="stable")

    def square(self, metric: str, variant: str) -> pd.DataFrame:
        """Return the similarity of every layer of A with every layer of B."""
        return self.comparison.similarity(self.a.name, self.b.name, metric, variant)

    def matches(self, metric: str, variant: str) -> list[Match]:
        """Return what matches each layer of A. Layer 0 of either is not a candidate for the most similar one."""
        square = self.square(metric, variant)
        values, near = square.to_numpy(), alike(square, metric)
        depths, depths_b = _depths(square.index, self.a), _depths(square.columns, self.b)
        away = np.abs(np.subtract.outer(depths, depths_b))
        candidates = np.isfinite(near) & np.outer(square.index != 0, square.columns != 0)
        most = np.where(candidates, near, -np.inf).argmax(1).tolist()
        same = away.argmin(1).tolist()
        # the last layers of both, after a norm where there is one
        same[-1] = len(square.columns) - 1
        matches = []
        for i, layer in enumerate(square.index):
            partner = square.columns[most[i]] if candidates[i].any() else None
            most_value, same_value = float(values[i, most[i]]), float(values[i, same[i]])
            apart = float(away[i, most[i]])
            match = Match(layer, partner, most_value, square.columns[same[i]], same_value, apart)
            matches.append(match)
        return matches


def pairs(comparison: "Comparison") -> list[Pair]:
    """Return every run beside the first."""
    first, *others = comparison.runs
    return [Pair(comparison, first, other) for other in others]


def alike(square: pd.DataFrame, metric: str) -> Values:
    """Return numbers that are the larger the more alike two layers are: distances turned around."""
    values: Values = square.to_numpy()
    return -values if about(metric).low else values


def headline(pair: Pair) -> str:
    """Return the answer in one line: which layer is most like which and how much, and the last ones."""
    metric, variant = pair.comparison.forms[0]
    square = pair.square(metric, variant)
    inside = square.loc[square.index != 0, square.columns != 0]
    if not np.isfinite(alike(inside, metric)).any():
        return (
            f"No similarity of layers is defined: the states of {plain(pair.b.name)} do not vary."
        )
    title, last = named(metric, variant), shown(float(square.iloc[-1, -1]))
    matches = [match for match in pair.matches(metric, variant) if match.most is not None]
    values = np.array([match.most_value for match in matches])
    a, b = plain(pair.a.name), plain(pair.b.name)
    whose = f"Layers of {a}, each with the layer of {b} most like it"
    how_sure = f"{title} {_span(values)}{_strength(metric, values)}{_ties(inside, metric)}"
    return f"{whose}: {_runs(matches)}; {how_sure}; the last layers {last}."


def _runs(rows: Sequence[Match]) -> str:
    """Return which layer is most like which, in few words: rows of layers with one partner, or with one each."""
    runs: list[list[Match]] = []
    for match in rows:
        run = runs[-1] if runs else []
        steps = {_step(*pair) for pair in pairwise([*run, match])}
        if run and len(steps) == 1 and None not in steps:
            run.append(match)
        else:
            runs.append([match])
    words = [
        f"{_ends(run[0].layer, run[-1].layer)} → {_ends(run[0].most, run[-1].most)}" for run in runs
    ]
    return ", ".join(words)


def _step(one: Match, two: Match) -> int | None:
    """Return how many layers later the second one's partner is, 0 or 1; None where it is another or has no number."""
    layers = (one.layer, one.most, two.layer, two.most)
    numbers = [int(layer) for layer in layers if layer is not None and layer != "final"]
    if len(numbers) < len(layers) or numbers[2] - numbers[0] != 1:
        return None
    step = numbers[3] - numbers[1]
    return step if step in (0, 1) else None


def _ends(first: Layer | None, last: Layer | None) -> str:
    return str(first) if first == last else f"{first}–{last}"


def _span(values: Values) -> str:
    """Return the lowest and the highest of several similarities."""
    low, high = shown(float(values.min())), shown(float(values.max()))
    return low if low == high else f"{low} to {high}"


def _strength(metric: str, values: Values) -> str:
    """Return how alike layers are in a word; nothing for a distance."""
    if about(metric).low:
        return ""
    mean = float(values.mean())
    return f", {next(word for least, word in STRENGTHS if mean >= least)} on average"


def _ties(inside: pd.DataFrame, metric: str) -> str:
    """Return for how many layers another one is as much alike as the most similar one, in the places shown."""
    near = np.round(alike(inside, metric), 2)
    best = np.nanmax(np.where(np.isnan(near), -np.inf, near), axis=1, keepdims=True)
    tied = int(((near == best).sum(1) > 1).sum())
    return f" (for {tied} of {count(len(near), 'layer')} another one ties)" if tied else ""


def sentences(pair: Pair) -> tuple[str, ...]:
    """Return what a reader should know beside the headline, a sentence each."""
    return (
        *_towers(pair),
        *(_same_depth(pair, *form) for form in pair.comparison.forms),
        *_apart(pair),
    )


def _towers(pair: Pair) -> Iterator[str]:
    """Yield how alike layers are on average within each of two towers and across them, where they were compared so."""
    if not pair.towers:
        return
    rows = pair.comparison.named
    is_within = (rows["kind"] == "within") & (rows["a"] != rows["b"])
    rows = rows[is_within | (rows["kind"] == "similarity")]
    a, b = pair.a.name, pair.b.name
    for (metric, variant), group in rows.groupby(["metric", "variant"], sort=False):
        mean = group.groupby(["run", "run_b"])["value"].mean()
        yield (
            f"{capital(named(metric, variant))} of layers on average: {shown(mean[a, a])} within {plain(a)}, "
            f"{shown(mean[b, b])} within {plain(b)}, {shown(mean[a, b])} across."
        )


def _same_depth(pair: Pair, metric: str, variant: str) -> str:
    matches, title = pair.matches(metric, variant), named(metric, variant)
    blocks = [match.same_value for match in matches if match.layer != 0]
    along = [value for value in blocks if math.isfinite(value)]
    away = [match.away for match in matches if match.most is not None]
    if not along or not away:
        return f"{title}: not defined at any depth."
    return (
        f"{capital(title)} at the same depth, layers 1 and up: {shown(float(np.mean(along)))} on "
        f"average, from {shown(min(along))} to {shown(max(along))}; the layer most like one lies "
        f"{100 * float(np.mean(away)):.0f} % of the depth away on average."
    )


def _apart(pair: Pair) -> Iterator[str]:
    """Yield where each metric with a standard error differs most, and which ones do not."""
    nowhere = []
    for metric, variant, _, rows in by_metric(pair.differences):
        rows = rows[rows["stderr"].notna() & rows["value"].notna()]
        sure, most = rows[_sure(rows)], largest(rows)
        if len(sure):
            row = sure.iloc[0] if most is None else sure.loc[most]
            yield _largest_in_words(row, capital(titled(metric, variant)), most is None)
        elif len(rows):
            nowhere.append(named(metric, variant))
    if nowhere:
        yield f"Nowhere apart by more than {SURE:.0f} standard errors: {', '.join(dict.fromkeys(nowhere))}."


def _largest_in_words(row: pd.Series, title: str, is_only: bool) -> str:
    """Return a sentence on the largest difference, or the only one, which is at layer 0."""
    value_a, value_b = (number(scale(row["metric"]) * float(row[f"value_{x}"])) for x in "ab")
    where = " and ".join(map(layer_name, dict.fromkeys((row["a"], row["b"]))))
    most, paired = "only" if is_only else "most", ", paired by sample" if row["paired"] else ""
    values = f"{value_b} against {value_a}{paired}"
    return f"{title} differs {most} at {where}: {difference_text(row)} ({values})."


def by_metric(rows: pd.DataFrame) -> Iterator[tuple[str, str | None, bool, pd.DataFrame]]:
    """Yield each metric and variant, whether the metric has others, and the rows."""
    groups = list(rows.groupby(["metric", "variant"], sort=False, dropna=False))
    metrics = [metric for (metric, _), _ in groups]
    for (metric, variant), rows_of_metric in groups:
        yield (
            metric,
            variant if isinstance(variant, str) else None,
            metrics.count(metric) > 1,
            rows_of_metric,
        )


def largest(rows: pd.DataFrame) -> Any:
    """Return the index of the largest difference beyond its error, layer 0 aside; None where there is none."""
    sure = rows[_sure(rows) & (rows["layer"] > 0) & (rows["layer_b"] > 0)]
    return sure["value"].abs().idxmax() if len(sure) else None


def _sure(rows: pd.DataFrame) -> pd.Series:
    return rows["value"].abs() > SURE * rows["stderr"]


def difference_text(row: Any) -> str:
    """Return a difference with its sign, standard error and unit."""
    value, stderr = (scale(row["metric"]) * float(row[name]) for name in ("value", "stderr"))
    return " ".join(filter(None, (signed(value), error(stderr), unit_apart(row["metric"]))))


def signed(value: float) -> str:
    """Return a difference with its sign."""
    if not math.isfinite(value) or number(value) == "0":
        return number(value)
    return f"{'+' if value > 0 else '−'}{number(abs(value))}"


def shown(value: float) -> str:
    """Return a similarity."""
    # + 0.0: no minus before nothing
    return f"{round(value, 2) + 0.0:.2f}" if math.isfinite(value) else "–"


def layer_name(layer: Layer) -> str:
    """Return a layer as a sentence names it."""
    return "the final layer" if layer == "final" else f"layer {layer}"


def _depths(layers: Iterable[Layer], member: "Member") -> list[float]:
    return [1.0 if layer == "final" else float(layer) / member.depth for layer in layers]


def checkpoints(comparison: "Comparison") -> list[str]:
    """Return the column heads of a map by checkpoint: steps where they are known, else the names of the runs."""
    return [plain(m.name) if m.step is None else f"{m.step:,}" for m in comparison.runs]


def maps(comparison: "Comparison") -> Iterator[tuple[str, str, pd.DataFrame]]:
    """Yield metric, title and map of layers by checkpoints: similarities to the last and the one before come first."""
    frame, names = comparison.named, [member.name for member in comparison.runs]

    def by_checkpoint(rows: pd.DataFrame) -> pd.DataFrame:
        wide = rows.pivot(index="a", columns="run", values="value")
        layers = sorted(wide.index, key=lambda layer: math.inf if layer == "final" else layer)
        return wide.reindex(index=layers, columns=[name for name in names if name in wide.columns])

    counterparts = frame[frame["kind"] == "counterpart"]
    before = dict(zip(names[1:], names, strict=False))
    for metric, variant in comparison.forms:
        rows = counterparts[
            (counterparts["metric"] == metric) & (counterparts["variant"] == variant)
        ]
        title = named(metric, variant)
        yield (
            metric,
            f"{title} to the last checkpoint",
            by_checkpoint(rows[rows["run_b"] == names[-1]]),
        )
        previous = rows[rows["run_b"] == rows["run"].map(before)]
        yield metric, f"{title} to the checkpoint before", by_checkpoint(previous)
    values = by_metric(frame[frame["kind"] == "value"])
    for metric, variant_of_value, several, rows in sorted(
        values, key=lambda group: (rank(group[0]), group[1] is None, group[1] or "")
    ):
        yield metric, capital(titled(metric, variant_of_value, several)), by_checkpoint(rows)

"""Differences of metrics by depth, B − A: paired by sample where both runs keep each sample's values."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from layerscope.comparison.matching import Side
from layerscope.comparison.measured import Key, Measured, PerSample, Values
from layerscope.core.errors import LayerscopeError, choices
from layerscope.metrics.factors import FromViews
from layerscope.runs.registry import about, rank
from layerscope.runs.states import Column

Row = dict[str, Any]
OF_TOKENS = ("perplexity", "layer_accuracy", "label_probability", "cross_entropy")
"""What a language model's head says of its own tokens: with other tokens it is another question."""


def chosen_metrics(
    sides: Sequence[Side], known: Sequence[dict[Key, Measured]], asked: Sequence[str] | None
) -> tuple[list[Key], list[str]]:
    """Return the metrics that every run has in the same variant, in the order of the registry, and what is left out.

    Raises `LayerscopeError` for a metric that was asked for and is not in every run, for InfoNCE and DiME of blocks of
    other sizes, and for LiDAR of another number of views.
    """
    names = [list(dict.fromkeys(metric for metric, _ in found)) for found in known]
    shared = sorted((name for name in names[0] if all(name in others for others in names)), key=rank)
    for name in asked or ():
        if name not in shared:
            raise LayerscopeError(f"metric {name!r} is not in all of these runs{choices(name, shared, 'they share')}")
    notes, keys = [], []
    tokens = {side.run.info["data"].get("tokens") for side in sides}
    other_tokens = len(tokens) > 1 and any(side.run.info["model"].get("language_model") for side in sides)
    for name in shared if asked is None else [name for name in shared if name in asked]:
        own = [[variant for metric, variant in found if metric == name] for found in known]
        same = [variant for variant in own[0] if all(variant in others for others in own)]
        if about(name).needs == "views" and len({_blocks(variants) for variants in own}) > 1:
            raise _other_blocks(sides, name, own, [other for other in shared if about(other).needs != "views"])
        if other_tokens and name in OF_TOKENS:
            notes.append(f"{about(name).title} is not compared: the models read other tokens")
        elif not same:
            notes.append(f"{about(name).title} is not compared: no variant is in all runs ({_listed(sides, own)})")
        else:
            keys += [(name, variant) for variant in same]
    only = {name for found in names for name in found} - set(shared)
    if only and asked is None:
        notes.append(f"not in all runs, and not compared: {', '.join(sorted(only, key=rank))}")
    return keys, notes


def _blocks(variants: Sequence[str | None]) -> frozenset[str]:
    """Return the sizes of blocks (or numbers of views) that variants begin with: "N=256" of "N=256,alpha=2"."""
    return frozenset((variant or "").partition(",")[0] for variant in variants)


def _listed(sides: Sequence[Side], variants: Sequence[Sequence[str | None]]) -> str:
    """Return which variants of a metric each run has."""
    found = zip(sides, variants, strict=True)
    return "; ".join(f"{'+'.join(v or '–' for v in own)} in {str(side.run.path)!r}" for side, own in found)


def _other_blocks(
    sides: Sequence[Side], name: str, own: Sequence[Sequence[str | None]], others: Sequence[str]
) -> LayerscopeError:
    in_blocks = isinstance(about(name).how, FromViews)
    what, option = ("blocks of one size", "view_samples") if in_blocks else ("the same number of views", "views")
    mend = f"profile with the same `{option}`"
    if in_blocks and sides[0].left_out and len({side.run.info["options"].get("view_samples") for side in sides}) == 1:
        mend = "samples broke in some run, so profile both without them"
    out = f", or leave it out with `metrics='{','.join(others)}'`" if others else ""
    title = about(name).title
    return LayerscopeError(f"{title} cannot be compared ({_listed(sides, own)}): it needs {what}; {mend}{out}")


def partners(a: Side, b: Side, of_a: Measured, of_b: Measured) -> Iterator[tuple[Column, Column]]:
    """Yield the layers to compare: those of the shallower run, each with the nearest of the other.

    The last layers, after the norm where there is one, are partners as well.
    """
    depth, most = min(a.depth, b.depth), max(a.depth, b.depth)
    for layer in range(depth + 1):
        far = math.ceil(layer * most / depth - 0.5)  # halves go down
        own, other = (layer, far) if a.depth <= b.depth else (far, layer)
        yield Column(of_a.site, own), Column(of_b.site, other)
    ends = _last(a, of_a), _last(b, of_b)
    if ends != (Column(of_a.site, a.depth), Column(of_b.site, b.depth)):
        yield ends


def _last(side: Side, entry: Measured) -> Column:
    final = Column(side.run.final, side.depth)
    return final if final in entry.rows else Column(entry.site, side.depth)


def difference_rows(sides: Sequence[Side], known: Sequence[dict[Key, Measured]], keys: Sequence[Key]) -> Iterator[Row]:
    """Yield B − A of each metric at each pair of layers, for every run B and the first, with its standard error."""
    a, first = sides[0], PerSample(sides[0])
    for b, measured in zip(sides[1:], known[1:], strict=True):
        other = PerSample(b)
        ends = Column(a.run.final, a.depth), Column(b.run.final, b.depth)
        for key in keys:
            of_a, of_b = known[0][key], measured[key]
            for at_a, at_b in partners(a, b, of_a, of_b):
                itself = about(key[0]).needs == "pairs" and (at_a, at_b) == ends
                if at_a not in of_a.rows or at_b not in of_b.rows or itself:
                    continue
                own, others = first.of(key, of_a, at_a), other.of(key, of_b, at_b)
                if own is not None and others is not None:
                    found = _paired(own.astype(np.float64), others.astype(np.float64), a.total)
                else:
                    found = _combined(of_a.rows[at_a], of_b.rows[at_b])
                yield {
                    "kind": "difference", "run": a.name, "run_b": b.name, "metric": key[0], "variant": key[1],
                    "layer": at_a.layer, "site": at_a.site, "layer_b": at_b.layer, "site_b": at_b.site,
                    "pooling": of_a.pooling, "pooling_b": of_b.pooling, **found,
                }  # fmt: skip


def _paired(a: Values, b: Values, total: int) -> Row:
    """Return the mean of b − a over samples that have both, and the standard error of that mean."""
    both = ~(np.isnan(a) | np.isnan(b))
    a, b, n = a[both], b[both], int(both.sum())
    means = (float(a.mean()), float(b.mean())) if n else (math.nan, math.nan)
    error = float((b - a).std(ddof=1)) / math.sqrt(n) if n > 1 else math.nan
    return _difference(*means, error, n, total - n, True)


def _combined(a: Row, b: Row) -> Row:
    """Return the difference of two values of tables, and the root of the sum of their squared standard errors."""
    error = math.hypot(float(a["stderr"]), float(b["stderr"]))
    n = min(int(a["n"]), int(b["n"]))
    return _difference(float(a["value"]), float(b["value"]), error, n, int(a["n_skipped"]), False)


def _difference(a: float, b: float, error: float, n: int, skipped: int, paired: bool) -> Row:
    known = {"value": b - a, "stderr": error, "n": n, "n_skipped": skipped}
    return known | {"value_a": a, "value_b": b, "paired": paired}

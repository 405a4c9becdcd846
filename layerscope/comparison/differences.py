"""Differences of metrics by depth, B − A: paired by sample where both runs keep each sample's values."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from layerscope.comparison.matching import Side, Sides
from layerscope.comparison.measured import Key, Measured, PerSample, Values
from layerscope.core.errors import LayerscopeError, choices
from layerscope.runs.registry import about, rank
from layerscope.runs.states import Column

Row = dict[str, Any]
BLOCKED = ("infonce", "infonce_bound", "dime")
"""Metrics whose value hangs on the number of samples in a block."""
OF_TOKENS = ("perplexity", "layer_accuracy", "label_probability", "cross_entropy")
"""What a language model's head says of its own tokens: of other tokens it is another question."""


def chosen_metrics(
    sides: Sides, known: Sequence[dict[Key, Measured]], asked: Sequence[str] | None
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
    wanted = [name for name in shared if asked is None or name in asked]
    notes, keys = [], []
    told = _other_tokens(sides)
    for name in wanted:
        own = [_variants(found, name) for found in known]
        same = [variant for variant in own[0] if all(variant in others for others in own)]
        if about(name).needs == "views" and len({frozenset(map(_block, variants)) for variants in own}) > 1:
            raise _other_blocks(sides, name, own, [other for other in shared if about(other).needs != "views"])
        if name in told or not same:
            notes.append(f"{about(name).title} is not compared: {told.get(name) or _other_variants(sides, own)}")
            continue
        keys += [(name, variant) for variant in same]
    only = {name for found in names for name in found} - set(shared)
    if only and asked is None:
        notes.append(f"not in all runs, and not compared: {', '.join(sorted(only, key=rank))}")
    return keys, notes


def _variants(found: dict[Key, Measured], name: str) -> list[str | None]:
    return [variant for metric, variant in found if metric == name]


def _block(variant: str | None) -> str:
    """Return the size of the blocks (or number of views) that a variant begins with: "N=256" of "N=256,alpha=2"."""
    return (variant or "").partition(",")[0]


def _other_tokens(sides: Sides) -> dict[str, str]:
    """Return why metrics of a language model's own tokens are not compared: the tokens differ."""
    tokens = {side.run.info["data"].get("tokens") for side in sides}
    speaks = any(side.run.info["model"].get("language_model") for side in sides)
    return dict.fromkeys(OF_TOKENS, "the models read other tokens") if speaks and len(tokens) > 1 else {}


def _other_variants(sides: Sides, own: Sequence[Sequence[str | None]]) -> str:
    told = "; ".join(f"{', '.join(v or '–' for v in o)} in {s.run.path.name}" for s, o in zip(sides, own, strict=True))
    return f"no variant is in all runs ({told})"


def _other_blocks(
    sides: Sides, name: str, own: Sequence[Sequence[str | None]], others: Sequence[str]
) -> LayerscopeError:
    told = ", ".join(
        f"{'+'.join(v or '–' for v in variants)} in {str(side.run.path)!r}"
        for side, variants in zip(sides, own, strict=True)
    )
    what = "blocks of one size" if name in BLOCKED else "the same number of views"
    how = "`view_samples`" if name in BLOCKED else "`views`"
    asked = {side.run.info["options"].get("view_samples") for side in sides}
    mend = f"profile with the same {how}"
    if name in BLOCKED and sides.left_out and len(asked) == 1:
        mend = "samples broke in some run, so profile both without them"
    out = f", or leave it out with `metrics='{','.join(others)}'`" if others else ""
    return LayerscopeError(f"{about(name).title} cannot be compared ({told}): it needs {what}; {mend}{out}")


def partners(a: Side, b: Side, of_a: Measured, of_b: Measured) -> Iterator[tuple[Column, Column]]:
    """Yield the layers that stand beside each other: those of the shallower run, each with the nearest of the other.

    By layer where depths are equal. The last layers, after the norm where there is one, are partners as well.
    """
    depth, most = min(a.depth, b.depth), max(a.depth, b.depth)
    for layer in range(depth + 1):
        far = math.ceil(layer * most / depth - 0.5)  # halves go down
        own, other = (layer, far) if a.depth <= b.depth else (far, layer)
        yield Column(of_a.site, own), Column(of_b.site, other)
    ends = _last(a, of_a), _last(b, of_b)
    if ends != (Column(of_a.site, a.depth), Column(of_b.site, b.depth)):
        yield ends


def _is_itself(a: Side, b: Side, key: Key, own: Column, other: Column) -> bool:
    """Return whether both values are the similarity of a last layer to itself."""
    ends = Column(a.run.final, a.depth), Column(b.run.final, b.depth)
    return about(key[0]).needs == "pairs" and (own, other) == ends


def _last(side: Side, entry: Measured) -> Column:
    final = Column(side.run.final, side.depth)
    return final if final in entry.rows else Column(entry.site, side.depth)


def difference_rows(
    a: Side, b: Side, known: Sequence[dict[Key, Measured]], samples: tuple[PerSample, PerSample], keys: Sequence[Key]
) -> Iterator[Row]:
    """Yield B − A of each metric at each pair of layers, with its standard error and how that was found."""
    for key in keys:
        of_a, of_b = known[0][key], known[1][key]
        for own, other in partners(a, b, of_a, of_b):
            if own not in of_a.rows or other not in of_b.rows or _is_itself(a, b, key, own, other):
                continue
            values = samples[0].of(of_a, own), samples[1].of(of_b, other)
            if values[0] is not None and values[1] is not None:
                found = paired(values[0], values[1])
            else:
                found = combined(of_a.rows[own], of_b.rows[other])
            total = int(a.run.info["data"]["samples"])
            yield {
                "metric": key[0], "variant": key[1], "layer": own.layer, "site": own.site, "layer_b": other.layer,
                "site_b": other.site, "pooling": of_a.pooling, "pooling_b": of_b.pooling, **found,
                "n_skipped": max(0, total - found["n"]) if found["paired"] else int(of_a.rows[own]["n_skipped"]),
            }  # fmt: skip


def paired(a: Values, b: Values) -> Row:
    """Return the mean of b − a over samples that have both, and the standard error of that mean."""
    both = ~(np.isnan(a) | np.isnan(b))
    gap, n = (b - a)[both], int(both.sum())
    if not n:
        return _told(math.nan, math.nan, math.nan, 0, True)
    error = float(gap.std(ddof=1)) / math.sqrt(n) if n > 1 else math.nan
    return _told(float(a[both].mean()), float(b[both].mean()), error, n, True)


def combined(a: Row, b: Row) -> Row:
    """Return the difference of two values of tables, and the root of the sum of their squared standard errors."""
    error = math.hypot(float(a["stderr"]), float(b["stderr"]))
    return _told(float(a["value"]), float(b["value"]), error, min(int(a["n"]), int(b["n"])), False)


def _told(a: float, b: float, error: float, n: int, is_paired: bool) -> Row:
    return {"value": b - a, "stderr": error, "n": n, "value_a": a, "value_b": b, "paired": is_paired}

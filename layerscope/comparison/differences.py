"""How metrics of two runs differ by depth, B − A: paired by sample where both keep each sample's value.

Layers are compared at the same share of the depth. Of runs of 6 and 12 layers each layer of the
deeper one has a partner: 12 and 6, 11 and 5 (5.5 goes down), 10 and 5, … 0 and 0. Where both runs
keep a metric of every sample the standard error is that of the differences by sample, else that of
two independent means.

Of three samples whose entropies are 1, 2 and 3 in one run and 1.5, 2.5 and 3.5 in the other, the
means are 2 ±0.58 and 2.5 ±0.58: two such means might well be the same. By sample the difference is
0.5 three times, with no error at all.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from layerscope.comparison.matching import Side
from layerscope.core import LayerscopeError, choices
from layerscope.runs.curves import text_or_none
from layerscope.runs.registry import about, is_scalar, named, parse_key, rank
from layerscope.runs.states import PROJECTED

Row = dict[str, Any]
Key = tuple[str, str | None]
"""Metric and variant."""
Cell = tuple[str, str | None, str | None, str, int]
"""Metric, variant, pooling, site and layer."""
Values = NDArray[np.floating[Any]]
Curves = dict[Key, pd.DataFrame]
"""The rows of each metric by layer."""
PLACE = ("pooling", "site", "layer")
NUMBERS = ("value", "stderr", "n", "n_skipped")
FINAL = "final"
"""The last layer after the norm, as a partner of another run's."""
OF_TOKENS = ("perplexity", "layer_accuracy", "label_probability", "cross_entropy")
"""What a language model's head says of its own tokens: with other tokens it is another question."""


def chosen_metrics(
    sides: Sequence[Side], curves: Sequence[Curves], names: Sequence[str] | None
) -> tuple[list[Key], list[str]]:
    """Return the metrics that every run has in the same variant, in the order of the registry, and what is left out.

    `names` are those to compare, None for all. Raises `LayerscopeError` for one that is not in
    every run.
    """
    by_run = [{metric for metric, _ in run_curves} for run_curves in curves]
    shared = sorted(set.intersection(*by_run), key=rank)
    if names is None:
        names = shared
    for name in names:
        if name not in shared:
            hint = choices(name, shared, "they share")
            raise LayerscopeError(f"metric {name!r} is not in all of these runs{hint}")
    in_all = set.intersection(*map(set, curves))
    tokens = set()
    for side in sides:
        if side.run.info["model"].get("language_model"):
            tokens.add(side.run.info["data"].get("tokens"))
    chosen = []
    notes = []
    for name in sorted(set(names), key=rank):
        keys = [key for key in curves[0] if key[0] == name and key in in_all]
        if len(tokens) > 1 and name in OF_TOKENS:
            why = "the models use different tokens"
        elif not keys:
            why = "the runs measured it with different options"
        else:
            chosen += keys
            continue
        notes.append(f"{named(name)} is not compared: {why}")
    return chosen, notes


def curves_of(side: Side) -> Curves:
    """Return a run's metrics by layer, each at one pooling and site.

    `place` is the layer, or `FINAL` for the last one after its norm.
    """
    run = side.run
    table = run.at()
    table = table[table["layer_b"].isna() & table["value"].notna()]
    table = table.astype({"pooling": object})
    curves = {}
    for (metric, variant), rows in table.groupby(
        ["metric", "variant"], sort=False, dropna=False
    ):
        pooled = rows[rows["pooling"].isna() | (rows["pooling"] == side.pooling)]
        if pooled.empty:
            pooled = rows[rows["pooling"] == rows["pooling"].iloc[0]]
        entry = about(metric)
        measured = set(pooled["site"])
        sites = [s for s in ("raw", run.final, PROJECTED) if s in measured]
        if entry.setting or not sites:
            continue
        site = sites[0]
        is_final = (pooled["site"] == run.final) & (pooled["layer"] == run.depth)
        is_final &= pooled["site"] != site
        place = pooled["layer"].astype(object).mask(is_final, FINAL)
        pooling = pooled["pooling"].where(pooled["pooling"].notna(), None)
        curve = pooled.assign(place=place, pooling=pooling)
        curve = curve.loc[is_final | (curve["site"] == site)]
        # one number for all layers is no curve, and of another depth no number to subtract
        if entry.curve or len(curve) > 1:
            curves[metric, text_or_none(variant)] = curve[[*PLACE, *NUMBERS, "place"]]
    return curves


def partners(a: Side, b: Side) -> pd.DataFrame:
    """Return the layers to compare: those of the deeper run, each with the nearest of the other, and the last ones.

    Columns: `place` of the first run and `place_b` of the other, layers or `FINAL`. The last layers
    of both are compared as the model gives them, after the norm where it has one.
    """
    depth, most = sorted((a.depth, b.depth))
    layers = np.arange(most + 1)
    # halves go down
    nearest = np.ceil(layers * depth / most - 0.5).astype(int)
    pairs = pd.DataFrame({"place": nearest, "place_b": layers}, dtype=object)
    if a.depth > b.depth:
        pairs = pairs.set_axis(["place_b", "place"], axis=1)
    last = []
    for side in (a, b):
        has_norm = side.run.final != "raw"
        last.append(FINAL if has_norm else side.depth)
    if FINAL in last:
        pairs.loc[len(pairs), ["place", "place_b"]] = last
    return pairs


def difference_rows(
    sides: Sequence[Side], curves: Sequence[Curves], keys: Sequence[Key]
) -> Iterator[Row]:
    """Yield B − A of each metric at each pair of layers, for every run B and the first, with its standard error."""
    a, *others = sides
    curves_a, *other_curves = curves
    samples_a = per_sample(a)
    for b, curves_b in zip(others, other_curves, strict=True):
        samples_b = per_sample(b)
        pairs = partners(a, b)
        for key in keys:
            rows = pairs.merge(curves_a[key], on="place")
            rows = rows.merge(curves_b[key].add_suffix("_b"), on="place_b")
            for row in rows.to_dict(orient="records"):
                place = [row[name] for name in PLACE]
                place_b = [row[f"{name}_b"] for name in PLACE]
                values = samples_a.get((*key, *place))
                values_b = samples_b.get((*key, *place_b))
                numbers = _independent(row)
                if values is not None and values_b is not None:
                    numbers = _paired(values, values_b, a.total)
                yield {
                    "kind": "difference",
                    "run": a.name,
                    "run_b": b.name,
                    "metric": key[0],
                    "variant": key[1],
                    **row,
                    **numbers,
                }


def _independent(row: Row) -> Row:
    """Return the difference of two independent values: their standard errors add up as squares.

    A row has the values of both runs, those of the second with names that end in `_b`.
    """
    return {
        "value": row["value_b"] - row["value"],
        "stderr": math.hypot(row["stderr"], row["stderr_b"]),
        "n": min(row["n"], row["n_b"]),
        "n_skipped": row["n_skipped"],
        "value_a": row["value"],
        "value_b": row["value_b"],
        "paired": False,
    }


def _paired(a: Values, b: Values, total: int) -> Row:
    """Return the mean difference over the samples that have both values, and its standard error.

    >>> row = _paired(np.array([1.0, 2.0, 3.0]), np.array([1.5, 2.5, np.nan]), total=3)
    >>> float(row["value"]), float(row["stderr"]), row["n"], row["n_skipped"]
    (0.5, 0.0, 2, 1)
    """
    both = pd.DataFrame({"a": a, "b": b}, dtype="float64").dropna()
    means = both.mean()
    return {
        "value": means["b"] - means["a"],
        "stderr": (both["b"] - both["a"]).sem(),
        "n": len(both),
        "n_skipped": total - len(both),
        "value_a": means["a"],
        "value_b": means["b"],
        "paired": True,
    }


def per_sample(side: Side) -> dict[Cell, Values]:
    """Return the values [N] kept of each sample, in the order of the common ones, by metric and layer."""
    kept: dict[Cell, Values] = {}
    folder = side.run.folder
    for key in filter(is_scalar, folder.sample_keys()):
        metric, variant, site = parse_key(key)
        by_layer = folder.sample_values(key).numpy()[:, side.rows]
        for layer, values in zip(side.run.layers_at(site), by_layer, strict=True):
            kept[metric, variant, None, site, layer] = values
    order = folder.plan["sample"].to_numpy()[side.rows]
    for name in folder.tables():
        if not name.startswith("samples."):
            continue
        cells = folder.read_table(name).groupby(
            ["metric", "variant", *PLACE], dropna=False
        )
        for (metric, variant, pooling, site, layer), rows in cells:
            values = rows.set_index("sample")["value"].reindex(order)
            form = metric, text_or_none(variant), text_or_none(pooling)
            kept[*form, site, layer] = values.to_numpy(dtype=np.float64)
    return kept

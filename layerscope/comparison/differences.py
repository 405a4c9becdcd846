"""How metrics of two runs differ by depth, B − A: paired by sample where both keep each sample's value.

Layers are compared at the same share of the depth. Of runs of 6 and 12 layers each layer of the
deeper one has a partner: 12 and 6, 11 and 5 (5.5 goes down), 10 and 5, … 0 and 0. Where both runs
keep a metric of every sample the standard error is that of the differences by sample, else that of
two independent means.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

from layerscope.comparison.matching import Side
from layerscope.core.errors import LayerscopeError, choices
from layerscope.runs.registry import about, is_scalar, named, parse_key, rank
from layerscope.runs.states import PROJECTED

Row = dict[str, Any]
Key = tuple[str, str | None]
"""Metric and variant."""
Cell = tuple[str, str | None, str | None, str, int]
"""Metric, variant, pooling, site and layer."""
Values = npt.NDArray[np.floating[Any]]
Curves = dict[Key, pd.DataFrame]
"""The rows of each metric by layer."""
PLACE, NUMBERS = ("layer", "site", "pooling"), ("value", "stderr", "n", "n_skipped")
FINAL = "final"
"""The last layer after the norm, as a partner of another run's."""
KEPT = {"cosine_similarity": "cosine_to_last"}
"""What each sample's values are called where that is not the metric's own name."""
OF_TOKENS = ("perplexity", "layer_accuracy", "label_probability", "cross_entropy")
"""What a language model's head says of its own tokens: with other tokens it is another question."""


def chosen_metrics(
    sides: Sequence[Side], curves: Sequence[Curves], names: Sequence[str] | None
) -> tuple[list[Key], list[str]]:
    """Return the metrics that every run has in the same variant, in the order of the registry, and what is left out.

    `names` are those to compare, None for all. Raises `LayerscopeError` for one that is not in
    every run.
    """
    by_run = [
        {metric for metric, _ in of_run if not about(metric).setting}
        for of_run in curves
    ]
    shared = sorted(set.intersection(*by_run), key=rank)
    for name in names or ():
        if name not in shared:
            hint = choices(name, shared, "they share")
            raise LayerscopeError(f"metric {name!r} is not in all of these runs{hint}")
    chosen, notes = list[Key](), list[str]()
    different_tokens = _have_different_tokens(sides)
    for name in shared:
        if names is not None and name not in names:
            continue
        in_all = [
            key for key in curves[0] if key[0] == name and all(key in c for c in curves)
        ]
        if different_tokens and name in OF_TOKENS:
            notes.append(
                f"{named(name)} is not compared: the models use different tokens"
            )
        elif in_all:
            chosen += in_all
        else:
            notes.append(
                f"{named(name)} is not compared: the runs measured it with different options"
            )
    others = sorted(set.union(*by_run) - set(shared), key=rank)
    if names is None and others:
        titles = ", ".join(map(named, others))
        notes.append(f"not compared, as not every run has them: {titles}")
    return chosen, notes


def _have_different_tokens(sides: Sequence[Side]) -> bool:
    """Return whether the runs are of language models with different tokens."""
    infos = [side.run.info for side in sides]
    is_language = any(info["model"].get("language_model") for info in infos)
    return is_language and len({info["data"].get("tokens") for info in infos}) > 1


def curves_by_run(sides: Sequence[Side], pooling: str | None) -> list[Curves]:
    """Return of each run its metrics by layer.

    Where no `pooling` was chosen, metrics whose values by sample are kept of one pooling are taken
    of it, if all runs keep the same.
    """
    kept = {
        [*side.run.info["pair_pooling"], *side.run.info["pooling"]][0] for side in sides
    }
    common = kept.pop() if pooling is None and len(kept) == 1 else None
    return [_curves(side, common) for side in sides]


def _curves(side: Side, kept: str | None) -> Curves:
    """Return a run's metrics by layer, each at one pooling and site, similarities to the last layer among them.

    `place` is the layer, or the last one after its norm.
    """
    table, run = side.run.at(), side.run
    to_last = (table["layer_b"] == run.depth) & (table["site_b"] == run.final)
    table = table[
        (table["layer_b"].isna() | to_last.fillna(False)) & table["value"].notna()
    ]
    curves: Curves = {}
    for (metric, variant), rows in table.groupby(
        ["metric", "variant"], sort=False, dropna=False
    ):
        entry = about(str(metric))
        poolings = list(rows["pooling"].dropna().unique())
        preferred = [side.pooling, *poolings]
        if metric in KEPT and kept is not None:
            preferred.insert(0, kept)
        pooling = next((name for name in preferred if name in poolings), None)
        rows = rows[
            rows["pooling"].isna() if pooling is None else rows["pooling"] == pooling
        ]
        sites = [
            site for site in ("raw", run.final, PROJECTED) if site in set(rows["site"])
        ]
        if not sites:
            continue
        is_last = (rows["site"] == run.final) & (rows["layer"] == run.depth)
        is_normed = is_last & (rows["site"] != sites[0])
        rows = rows.assign(place=rows["layer"].astype(object).mask(is_normed, FINAL))
        # a layer's similarity to itself says nothing
        is_itself = is_last & (entry.needs == "pairs")
        rows = rows[((rows["site"] == sites[0]) | is_last) & ~is_itself]
        # one number for all layers is no curve, and of another depth no number to subtract
        if len(rows) >= (1 if entry.curve else 2):
            key = str(metric), _text(variant)
            curves[key] = rows.assign(pooling=pooling)[[*PLACE, *NUMBERS, "place"]]
    return curves


def partners(a: Side, b: Side) -> pd.DataFrame:
    """Return the layers to compare: those of the deeper run, each with the nearest of the other, and the last ones."""
    depth, most = min(a.depth, b.depth), max(a.depth, b.depth)
    pairs: list[tuple[int | str, int | str]] = []
    for layer in range(most + 1):
        near = math.ceil(layer * depth / most - 0.5)  # halves go down
        pairs.append((near, layer) if a.depth <= b.depth else (layer, near))
    ends = tuple(side.depth if side.run.final == "raw" else FINAL for side in (a, b))
    if FINAL in ends:
        pairs.append((ends[0], ends[1]))
    return pd.DataFrame(pairs, columns=["place", "place_b"], dtype=object)


def difference_rows(
    sides: Sequence[Side], curves: Sequence[Curves], keys: Sequence[Key]
) -> Iterator[Row]:
    """Yield B − A of each metric at each pair of layers, for every run B and the first, with its standard error."""
    a, *others = sides
    of_a, *of_others = curves
    samples_a = per_sample(a)
    for b, of_b in zip(others, of_others, strict=True):
        samples_b, pairs = per_sample(b), partners(a, b)
        for metric, variant in keys:
            one, two = (curve[metric, variant] for curve in (of_a, of_b))
            rows = pairs.merge(one, on="place").merge(
                two.add_suffix("_b"), on="place_b"
            )
            for row in rows.to_dict(orient="records"):
                which = (KEPT.get(metric, metric), variant)
                values = samples_a.get(
                    (*which, row["pooling"], row["site"], row["layer"])
                )
                values_b = samples_b.get(
                    (*which, row["pooling_b"], row["site_b"], row["layer_b"])
                )
                if values is None or values_b is None:
                    numbers = _independent(row)
                else:
                    numbers = _paired(values, values_b, a.total)
                places = {
                    f"{name}{end}": row[f"{name}{end}"]
                    for name in PLACE
                    for end in ("", "_b")
                }
                about_both = {
                    "run": a.name,
                    "run_b": b.name,
                    "metric": metric,
                    "variant": variant,
                }
                yield {"kind": "difference", **about_both, **places, **numbers}


def _independent(row: Row) -> Row:
    """Return the difference of two independent values: their standard errors add up as squares."""
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
    """Return the mean difference over the samples that have both values, and its standard error."""
    both = ~(np.isnan(a) | np.isnan(b))
    x, y, n = a[both].astype(np.float64), b[both].astype(np.float64), int(both.sum())
    mean_a = float(x.mean()) if n else math.nan
    mean_b = float(y.mean()) if n else math.nan
    return {
        "value": mean_b - mean_a,
        "stderr": float((y - x).std(ddof=1)) / math.sqrt(n) if n > 1 else math.nan,
        "n": n,
        "n_skipped": total - n,
        "value_a": mean_a,
        "value_b": mean_b,
        "paired": True,
    }


def per_sample(side: Side) -> dict[Cell, Values]:
    """Return the values [N] kept of each sample, in the order of the common ones, by metric and layer."""
    kept: dict[Cell, Values] = {}
    for key, values in _in_shards(side).items():
        metric, variant, site = parse_key(key)
        for layer, of_layer in zip(side.run.layers_at(site), values, strict=True):
            kept[metric, variant, None, site, layer] = of_layer
    folder = side.run.folder
    order = folder.plan["sample"].to_numpy()[side.rows]
    for name in folder.tables():
        if not name.startswith("samples."):
            continue
        table = folder.read_table(name)
        keys = ["metric", "variant", "pooling", "site", "layer"]
        for (metric, variant, pooling, site, layer), rows in table.groupby(
            keys, dropna=False
        ):
            place = (_text(pooling), site, int(layer))
            values = rows.set_index("sample")["value"].reindex(order)
            kept[(metric, _text(variant), *place)] = values.to_numpy(dtype=np.float64)
    return kept


def _in_shards(side: Side) -> dict[str, Values]:
    """Return the scalars [layers, N] of the common samples that lie in a run's shards, by their keys."""
    folder, parts = side.run.folder, defaultdict[str, list[Tensor]](list)
    rows = list[npt.NDArray[np.int64]]()
    for shard in folder.shards:
        index = folder.rows(shard).index.to_numpy()
        if not np.isin(index, side.rows).any():
            continue
        rows.append(index)
        with folder.shard(shard) as file:
            for key in filter(is_scalar, file.keys()):
                parts[key].append(file.get_tensor(key))
    chosen = pd.Index(np.concatenate(rows)).get_indexer(side.rows)
    return {
        key: torch.cat(tensors, 1).numpy()[:, chosen] for key, tensors in parts.items()
    }


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None

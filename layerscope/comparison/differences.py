"""What runs hold of each metric, and how it differs by depth, B − A: paired by sample where both keep each value.

Layers are compared at the same share of the depth. Of runs of 6 and 12 layers each layer of the
deeper one has a partner: 12 and 6, 11 and 5 (5.5 goes down), 10 and 5, … 0 and 0. Where both runs
keep a metric of every sample the standard error is that of the differences by sample, else that of
two independent means.
"""

import math
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

from layerscope.comparison.matching import Side
from layerscope.core.errors import LayerscopeError, choices, count
from layerscope.metrics.factors import FromViews
from layerscope.runs.registry import about, is_scalar, named, parse_key, rank
from layerscope.runs.states import PROJECTED, Column

Row = dict[str, Any]
Key = tuple[str, str | None]
"""Metric and variant."""
Kept = tuple[str, str | None, str | None]
"""Metric, variant and pooling."""
Values = npt.NDArray[np.floating[Any]]
OF_TABLES = ("layer", "site", "value", "stderr", "n", "n_skipped")
KEPT = {"cosine_similarity": "cosine_to_last"}
"""What each sample's values are called where that is not the metric's own name."""
NAMED = 4
"""Metrics that a note names, of more than that the number."""
OF_TOKENS = ("perplexity", "layer_accuracy", "label_probability", "cross_entropy")
"""What a language model's head says of its own tokens: with other tokens it is another question."""


def chosen_metrics(
    sides: Sequence[Side], tables: "Sequence[dict[Key, Measured]]", names: Sequence[str] | None
) -> tuple[list[Key], list[str]]:
    """Return the metrics that every run has in the same variant, in the order of the registry, and what is left out.

    `names` are those to compare, None for all. Raises `LayerscopeError` for one that is not in
    every run, for InfoNCE and DiME of blocks of other sizes, and for LiDAR of another number of
    views.
    """
    shared, others = _shared(tables)
    for name in names or ():
        if name not in shared:
            raise LayerscopeError(
                f"metric {name!r} is not in all of these runs{choices(name, shared, 'they share')}"
            )
    notes, keys = list[str](), list[Key]()
    has_other_tokens = _has_other_tokens(sides)
    for name in shared:
        if names is not None and name not in names:
            continue
        variants = [[variant for metric, variant in table if metric == name] for table in tables]
        if about(name).needs == "views":
            _refuse_other_blocks(sides, name, variants, shared)
        same = _in_all(variants)
        title = about(name).title
        if has_other_tokens and name in OF_TOKENS:
            notes.append(f"{title} is not compared: the models use different tokens")
        elif same:
            keys += [(name, variant) for variant in same]
        else:
            why = f"no variant is in all runs ({_listed(sides, variants)})"
            notes.append(f"{title} is not compared: {why}")
    return keys, notes if names is not None else [*notes, *_not_shared(others)]


def _shared(tables: "Sequence[dict[Key, Measured]]") -> tuple[list[str], set[str]]:
    """Return the metrics that every run has, in the order of the registry, and those that only some have."""
    by_run = [{metric for metric, _ in table if not about(metric).setting} for table in tables]
    shared = set.intersection(*by_run)
    return sorted(shared, key=rank), set.union(*by_run) - shared


def _in_all(variants: Sequence[Sequence[str | None]]) -> list[str | None]:
    """Return the variants of a metric that every run has, in the order of the first."""
    first, *others = variants
    return [variant for variant in first if all(variant in other for other in others)]


def _has_other_tokens(sides: Sequence[Side]) -> bool:
    """Return whether the runs are of language models with different tokens."""
    infos = [side.run.info for side in sides]
    is_language = any(info["model"].get("language_model") for info in infos)
    return is_language and len({info["data"].get("tokens") for info in infos}) > 1


def _not_shared(metrics: Collection[str]) -> list[str]:
    """Return the note on metrics that not every run has."""
    titles = [named(name) for name in sorted(metrics, key=rank)]
    if not titles:
        return []
    more = f" and {count(len(titles) - NAMED, 'other')}" if len(titles) > NAMED else ""
    return [f"not compared, as not every run has them: {', '.join(titles[:NAMED])}{more}"]


def _listed(sides: Sequence[Side], variants: Sequence[Sequence[str | None]]) -> str:
    pairs = zip(sides, variants, strict=True)
    return "; ".join(
        f"{'+'.join(v or '–' for v in names)} in {str(side.run.path)!r}" for side, names in pairs
    )


def _refuse_other_blocks(
    sides: Sequence[Side],
    name: str,
    variants: Sequence[Sequence[str | None]],
    shared: Sequence[str],
) -> None:
    """Raise where a metric of views is of blocks of other sizes, or of other numbers of views."""
    # sizes of blocks, or numbers of views, stand first: "N=256" of "N=256,alpha=2"
    sizes = {frozenset((one or "").partition(",")[0] for one in names) for names in variants}
    if len(sizes) == 1:
        return
    what, option = "the same number of views", "views"
    in_blocks = isinstance(about(name).how, FromViews)
    if in_blocks:
        what, option = "blocks of one size", "view_samples"
    mend = f"profile with the same `{option}`"
    sizes_of_blocks = {side.run.info["options"].get("view_samples") for side in sides}
    if in_blocks and sides[0].left_out and len(sizes_of_blocks) == 1:
        mend = "samples broke in some run, so profile both without them"
    others = [other for other in shared if about(other).needs != "views"]
    if others:
        mend += f", or leave it out with `metrics='{','.join(others)}'`"
    raise LayerscopeError(
        f"{about(name).title} cannot be compared ({_listed(sides, variants)}): it needs {what}; {mend}"
    )


def partners(
    a: Side, b: Side, of_a: "Measured", of_b: "Measured"
) -> Iterator[tuple[Column, Column]]:
    """Yield the layers to compare: those of the deeper run, each with the nearest of the other.

    The last layers, after the norm where there is one, are partners as well.
    """
    depth, most = min(a.depth, b.depth), max(a.depth, b.depth)
    for layer in range(most + 1):
        near = math.ceil(layer * depth / most - 0.5)  # halves go down
        layer_a, layer_b = (near, layer) if a.depth <= b.depth else (layer, near)
        yield Column(of_a.site, layer_a), Column(of_b.site, layer_b)
    ends = _last(a, of_a), _last(b, of_b)
    if ends != (Column(of_a.site, a.depth), Column(of_b.site, b.depth)):
        yield ends


def _last(side: Side, entry: "Measured") -> Column:
    final = Column(side.run.final, side.depth)
    return final if final in entry.rows else Column(entry.site, side.depth)


def difference_rows(
    sides: Sequence[Side], tables: "Sequence[dict[Key, Measured]]", keys: Sequence[Key]
) -> Iterator[Row]:
    """Yield B − A of each metric at each pair of layers, for every run B and the first, with its standard error."""
    a, *others = sides
    of_a, *of_others = tables
    samples_a = per_sample(a)
    for b, of_b in zip(others, of_others, strict=True):
        samples_b = per_sample(b)
        for key in keys:
            one, two = of_a[key], of_b[key]
            name = KEPT.get(key[0], key[0]), key[1]
            by_sample = samples_a[(*name, one.pooling)], samples_b[(*name, two.pooling)]
            about_both = {
                "kind": "difference",
                "run": a.name,
                "run_b": b.name,
                "metric": key[0],
                "variant": key[1],
                "pooling": one.pooling,
                "pooling_b": two.pooling,
            }
            for column, column_b in partners(a, b, one, two):
                if _is_itself(key[0], a, b, column, column_b):
                    continue
                if column not in one.rows or column_b not in two.rows:
                    continue
                places = {
                    "layer": column.layer,
                    "site": column.site,
                    "layer_b": column_b.layer,
                    "site_b": column_b.site,
                }
                values, values_b = by_sample[0].get(column), by_sample[1].get(column_b)
                if values is None or values_b is None:
                    numbers = _of_tables(one.rows[column], two.rows[column_b])
                else:
                    numbers = _paired(values, values_b, a.total)
                yield {**about_both, **places, **numbers}


def _is_itself(metric: str, a: Side, b: Side, column: Column, column_b: Column) -> bool:
    """Return whether a similarity to the last layer is that of the last layer with itself in both runs."""
    ends = Column(a.run.final, a.depth), Column(b.run.final, b.depth)
    return about(metric).needs == "pairs" and (column, column_b) == ends


def _of_tables(a: Row, b: Row) -> Row:
    """Return the difference of two independent values: their standard errors add up as squares."""
    value_a, value_b = float(a["value"]), float(b["value"])
    return {
        "value": value_b - value_a,
        "stderr": math.hypot(float(a["stderr"]), float(b["stderr"])),
        "n": min(int(a["n"]), int(b["n"])),
        "n_skipped": int(a["n_skipped"]),
        "value_a": value_a,
        "value_b": value_b,
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


@dataclass(frozen=True)
class Measured:
    """A metric of one run: a row of its table for each layer, the last layer after the norm among them."""

    pooling: str | None
    site: str
    rows: dict[Column, Row]

    def values(self, run: str, key: Key) -> Iterator[Row]:
        """Yield the rows of a run's own table that are compared."""
        metric, variant = key
        about_all = {"kind": "value", "run": run, "metric": metric, "variant": variant}
        for row in self.rows.values():
            numbers = {name: row[name] for name in OF_TABLES}
            yield {**about_all, "pooling": self.pooling, **numbers}


def measured(sides: Sequence[Side], pooling: str | None) -> list[dict[Key, Measured]]:
    """Return of each run every metric that has values by layer; of similarities between layers that to the last one.

    Where no `pooling` was chosen, metrics whose values by sample are kept of one pooling are taken
    of it, if all runs keep the same.
    """
    kept = {[*side.run.info["pair_pooling"], *side.run.info["pooling"]][0] for side in sides}
    common = kept.pop() if pooling is None and len(kept) == 1 else None
    return [_measured(side, common) for side in sides]


def _measured(side: Side, kept: str | None) -> dict[Key, Measured]:
    table, run = side.run.at(), side.run
    to_last = (table["layer_b"] == run.depth) & (table["site_b"] == run.final)
    table = table[table["layer_b"].isna() | to_last.fillna(False)]
    metrics: dict[Key, Measured] = {}
    for (metric, variant), rows in table.groupby(["metric", "variant"], sort=False, dropna=False):
        pooling = _pooling_of(str(metric), rows, side, kept)
        rows = rows[rows["pooling"].isna() if pooling is None else rows["pooling"] == pooling]
        sites = [site for site in ("raw", run.final, PROJECTED) if site in set(rows["site"])]
        if not sites:
            continue
        is_last = (rows["site"] == run.final) & (rows["layer"] == run.depth)
        rows = rows[((rows["site"] == sites[0]) | is_last) & rows["value"].notna()]
        # one number for all layers is no curve, and of another depth no number to subtract
        if len(rows) < (1 if about(str(metric)).curve else 2):
            continue
        records = rows.to_dict(orient="records")
        by_column = {Column(row["site"], int(row["layer"])): row for row in records}
        metrics[str(metric), _text(variant)] = Measured(pooling, sites[0], by_column)
    return metrics


def _pooling_of(metric: str, rows: pd.DataFrame, side: Side, kept: str | None) -> str | None:
    """Return the pooling of a metric's values: the side's, else the first there is; None for values without any."""
    poolings = [str(name) for name in rows["pooling"].dropna().unique()]
    if metric in KEPT and kept in poolings:
        return kept
    if side.pooling in poolings:
        return side.pooling
    return poolings[0] if poolings else None  # one token has similarities too


def per_sample(side: Side) -> dict[Kept, dict[Column, Values]]:
    """Return the values [N] kept of each sample, in the order of the common ones, by metric, variant and pooling."""
    kept: dict[Kept, dict[Column, Values]] = defaultdict(dict)
    for key, values in _in_shards(side).items():
        metric, variant, site = parse_key(key)
        columns = [Column(site, layer) for layer in side.run.layers_at(site)]
        kept[metric, variant, None] |= zip(columns, values, strict=True)
    folder = side.run.folder
    order = folder.plan["sample"].to_numpy()[side.rows]
    keys = ["metric", "variant", "pooling", "site", "layer"]
    for name in folder.tables():
        if not name.startswith("samples."):
            continue
        for about_all, rows in folder.read_table(name).groupby(keys, dropna=False):
            metric, variant, pooling, site, layer = about_all
            values = rows.set_index("sample")["value"].reindex(order)
            column = Column(site, int(layer))
            kept[metric, _text(variant), pooling][column] = values.to_numpy(dtype=np.float64)
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
    return {key: torch.cat(tensors, 1).numpy()[:, chosen] for key, tensors in parts.items()}


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None

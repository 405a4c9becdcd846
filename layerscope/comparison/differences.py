"""What runs hold of each metric, and how it differs by depth, B − A: paired by sample where both keep each value."""

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
Values = npt.NDArray[np.floating[Any]]
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
    by_run = [{metric for metric, _ in table if not about(metric).setting} for table in tables]
    shared = sorted(set.intersection(*by_run), key=rank)
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
        same = [variant for variant in variants[0] if all(variant in one for one in variants)]
        title = about(name).title
        if has_other_tokens and name in OF_TOKENS:
            notes.append(f"{title} is not compared: the models use different tokens")
        elif not same:
            notes.append(
                f"{title} is not compared: no variant is in all runs ({_listed(sides, variants)})"
            )
        else:
            keys += [(name, variant) for variant in same]
    if names is None:
        notes += _not_shared(set.union(*by_run) - set(shared))
    return keys, notes


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
    found = zip(sides, variants, strict=True)
    return "; ".join(
        f"{'+'.join(v or '–' for v in own)} in {str(side.run.path)!r}" for side, own in found
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
        own, other = (near, layer) if a.depth <= b.depth else (layer, near)
        yield Column(of_a.site, own), Column(of_b.site, other)
    ends = _last(a, of_a), _last(b, of_b)
    if ends != (Column(of_a.site, a.depth), Column(of_b.site, b.depth)):
        yield ends


def _last(side: Side, entry: "Measured") -> Column:
    final = Column(side.run.final, side.depth)
    return final if final in entry.rows else Column(entry.site, side.depth)


def difference_rows(
    sides: Sequence[Side], known: "Sequence[dict[Key, Measured]]", keys: Sequence[Key]
) -> Iterator[Row]:
    """Yield B − A of each metric at each pair of layers, for every run B and the first, with its standard error."""
    a, first = sides[0], per_sample(sides[0])
    for b, measured in zip(sides[1:], known[1:], strict=True):
        other = per_sample(b)
        ends = Column(a.run.final, a.depth), Column(b.run.final, b.depth)
        for key in keys:
            of_a, of_b = known[0][key], measured[key]
            name = KEPT.get(key[0], key[0]), key[1]
            own, its = first.get((*name, of_a.pooling), {}), other.get((*name, of_b.pooling), {})
            for at_a, at_b in partners(a, b, of_a, of_b):
                itself = about(key[0]).needs == "pairs" and (at_a, at_b) == ends
                if at_a not in of_a.rows or at_b not in of_b.rows or itself:
                    continue
                found = _difference(
                    of_a.rows[at_a], of_b.rows[at_b], own.get(at_a), its.get(at_b), a.total
                )
                yield {
                    "kind": "difference",
                    "run": a.name,
                    "run_b": b.name,
                    "metric": key[0],
                    "variant": key[1],
                    "layer": at_a.layer,
                    "site": at_a.site,
                    "layer_b": at_b.layer,
                    "site_b": at_b.site,
                    "pooling": of_a.pooling,
                    "pooling_b": of_b.pooling,
                    **found,
                }


def _difference(own: Row, other: Row, a: Values | None, b: Values | None, total: int) -> Row:
    """Return the mean of b − a over samples that have both, and its standard error; else that of the tables' values.

    Two values of tables are independent: their standard errors add up as squares.
    """
    if a is None or b is None:
        error = math.hypot(float(own["stderr"]), float(other["stderr"]))
        n, skipped = min(int(own["n"]), int(other["n"])), int(own["n_skipped"])
        means = float(own["value"]), float(other["value"])
    else:
        both = ~(np.isnan(a) | np.isnan(b))
        x, y, n = a[both].astype(np.float64), b[both].astype(np.float64), int(both.sum())
        means = (float(x.mean()), float(y.mean())) if n else (math.nan, math.nan)
        error, skipped = float((y - x).std(ddof=1)) / math.sqrt(n) if n > 1 else math.nan, total - n
    return {
        "value": means[1] - means[0],
        "stderr": error,
        "n": n,
        "n_skipped": skipped,
        "value_a": means[0],
        "value_b": means[1],
        "paired": a is not None and b is not None,
    }


@dataclass(frozen=True)
class Measured:
    """A metric of one run: a row of its table for each layer, the last layer after the norm among them."""

    pooling: str | None
    site: str
    rows: dict[Column, Row]

    def values(self, run: str, key: Key) -> Iterator[Row]:
        """Yield the rows of a run's own table that are compared."""
        about = {
            "kind": "value",
            "run": run,
            "metric": key[0],
            "variant": key[1],
            "pooling": self.pooling,
        }
        for row in self.rows.values():
            yield about | {
                name: row[name] for name in ("layer", "site", "value", "stderr", "n", "n_skipped")
            }


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
    found: dict[Key, Measured] = {}
    for (metric, variant), rows in table.groupby(["metric", "variant"], sort=False, dropna=False):
        known = [str(name) for name in rows["pooling"].dropna().unique()]
        # the side's pooling, else the first of this metric: one token has similarities too
        pooling = side.pooling if side.pooling in known else known[0] if known else None
        pooling = kept if metric in KEPT and kept in known else pooling
        rows = rows[rows["pooling"] == pooling] if pooling else rows[rows["pooling"].isna()]
        site = next(
            (name for name in ("raw", run.final, PROJECTED) if name in set(rows["site"])), None
        )
        rows = rows[rows["site"].isin((site, run.final)) & rows["value"].notna()]
        rows = rows[(rows["site"] == site) | (rows["layer"] == run.depth)]
        # one number for all layers is no curve, and of another depth no number to subtract
        least = 1 if about(str(metric)).curve else 2
        if site is None or len(rows) < least:
            continue
        by_column = {
            Column(row["site"], int(row["layer"])): row for row in rows.to_dict(orient="records")
        }
        found[str(metric), _text(variant)] = Measured(pooling, site, by_column)
    return found


def per_sample(side: Side) -> dict[tuple[str, str | None, str | None], dict[Column, Values]]:
    """Return the values [N] kept of each sample, in the order of the common ones, by metric, variant and pooling."""
    found: dict[tuple[str, str | None, str | None], dict[Column, Values]] = defaultdict(dict)
    folder, parts, rows = side.run.folder, defaultdict[str, list[Tensor]](list), list[Values]()
    for shard in folder.shards:
        if (index := folder.rows(shard).index.to_numpy()).size and np.isin(index, side.rows).any():
            rows.append(index)
            with folder.shard(shard) as file:
                for key in filter(is_scalar, file.keys()):
                    parts[key].append(file.get_tensor(key))
    chosen = pd.Index(np.concatenate(rows)).get_indexer(side.rows)
    for key, tensors in parts.items():
        metric, variant, site = parse_key(key)
        columns = [Column(site, layer) for layer in side.run.layers_at(site)]
        found[metric, variant, None] |= zip(
            columns, torch.cat(tensors, 1).numpy()[:, chosen], strict=True
        )
    order = folder.plan["sample"].to_numpy()[side.rows]
    for name in filter(lambda name: name.startswith("samples."), folder.tables()):
        groups = folder.read_table(name).groupby(
            ["metric", "variant", "pooling", "site", "layer"], dropna=False
        )
        for (metric, variant, pooling, site, layer), table in groups:
            values = table.set_index("sample")["value"].reindex(order).to_numpy(dtype=np.float64)
            found[metric, _text(variant), pooling][Column(site, int(layer))] = values
    return found


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None

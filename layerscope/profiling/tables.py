"""From the run folder to the table: every metric by layer, without the model.

A table is made in items, such as its layers, which the processes of a team share. Each gives rows
of the table, and parts of tables of samples.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, filterfalse, islice, product
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from layerscope.core.processes import Team
from layerscope.core.progress import Reporter
from layerscope.metrics import factors
from layerscope.metrics.arrays import Estimate, mean
from layerscope.metrics.cosine_similarity import cosine_to
from layerscope.metrics.metric import Metric
from layerscope.metrics.pairs import CENTERING, Found, FromPairs, FromPath
from layerscope.metrics.readings import FromReadings, Readings
from layerscope.profiling.labels import label_items, label_rows
from layerscope.profiling.options import PassOptions
from layerscope.profiling.source import Numbers, Part, Row, Source
from layerscope.runs import COLUMNS, Run
from layerscope.runs.registry import Needs, about, is_scalar, parse_key
from layerscope.runs.states import OWN, Column

LENS = "lens."
PART = 2048
"""A frame of per-sample values holds this many samples: text columns take many times what the numbers do."""
BLOCK = 1000
"""InfoNCE and DiME compare this many samples with each other, or 256 where there are fewer."""
SMALL_BLOCK = 256
GROUPS = 5
"""Parts of a single block that are left out in turn to find its error."""


def write_tables(
    run: Run, options: PassOptions, reporter: Reporter, team: Team
) -> None:
    """Compute every metric asked for that is not yet in the run folder, and keep each kind as soon as it is known."""
    source, jobs, sizes = Source(run, options), list[tuple[Needs, Any]](), []
    wanted = filter(options.wants, STEPS)
    todo: list[Needs] = team.meet([*filterfalse(run.folder.has_table, wanted)])[0]
    for kind in todo:
        items = [*product([kind], STEPS[kind].items(source))]
        sizes.append(len(items))
        jobs += items
    made = team.each(partial(_made, source), jobs)
    with reporter.bar("metrics", len(todo)) as advance:
        for kind, size in zip(todo, sizes, strict=True):
            _write(run, kind, [*islice(made, size)], team)
            advance(1)


def _made(source: Source, job: tuple[Needs, Any]) -> list[Part]:
    """Return what an item of a table gives."""
    kind, item = job
    return [*STEPS[kind].rows(source, item)]


def _write(run: Run, kind: Needs, items: list[list[Part]], team: Team) -> None:
    """Write a kind's table, and those of its samples, in the order in which one process makes them."""
    rows, by_sample = list[Row](), defaultdict[str, list[pd.DataFrame]](list)
    for part in chain.from_iterable(items):
        if isinstance(part, dict):
            rows.append(part)
        else:
            table, frame = part
            by_sample[table].append(frame)
    if not team.leads:
        return
    for table, frames in by_sample.items():
        run.folder.write_table(table, frames)
    frame = pd.DataFrame(rows, columns=list(COLUMNS)).astype(COLUMNS)
    run.folder.write_table(kind, frame.assign(part=run.info["model"]["part"]))


def token_items(source: Source) -> list[str]:
    """Return the keys of per-sample values."""
    first, _ = next(source.original_shards())
    with source.folder.shard(first) as file:
        return sorted(filter(is_scalar, file.keys()), key=parse_key)


def token_rows(source: Source, key: str) -> Iterator[Row]:
    """Yield mean and standard error of a per-sample value by layer; undefined ones are left out and counted."""
    name, *_ = parse_key(key)
    parts = []
    for shard, fine in source.original_shards():
        with source.folder.shard(shard) as file:
            parts.append(file.get_tensor(key)[:, fine])
    layers = torch.cat(parts, 1).double()
    if has_values(name, layers):
        yield from of_tokens(source, key, map(mean, layers))


def has_values(name: str, layers: Tensor) -> bool:
    """Return whether values of a metric of tokens are shown: a rare one is left out where it is zero everywhere."""
    how = about(name).how
    return not (isinstance(how, factors.FromTokens) and how.rare) or bool(layers.any())


def of_tokens(source: Source, key: str, layers: Iterable[Estimate]) -> Iterator[Row]:
    """Yield the rows of one per-sample value from its mean over samples at each layer."""
    name, variant, site = parse_key(key)
    for layer, estimate in zip(source.run.layers_at(site), layers, strict=False):
        yield source.row(name, Column(site, layer), *estimate, variant=variant)


def layer_items(source: Source) -> list[tuple[str, Column]]:
    """Return pooling and layer of the states kept: 0..L, the final one, the sub-layers and the projected ones."""
    columns = (*source.run.columns, *source.run.sublayers)
    return [*product(source.poolings, columns), *product([OWN], source.run.projected)]


def pooled_rows(source: Source, item: tuple[str, Column]) -> Iterator[Row]:
    """Yield every metric of a layer's pooled states; those that are not defined for so few samples are left out."""
    pooling, column = item
    states = source.run.states(pooling, (column,), source.rows)
    yield from of_rows(source, factors.StoredRows(states), pooling, column)


def of_rows(
    source: Source, rows: factors.Rows, pooling: str, column: Column
) -> Iterator[Row]:
    """Yield every metric of the pooled states of one layer."""
    for metric, how in source.wanted(factors.FromRows):
        if how.lack(rows.count, rows.width) is not None:
            continue
        for variant, value in how.measured(rows, source.options):
            cells: Row = {"n": rows.count, "variant": variant, "pooling": pooling}
            yield source.row(metric.name, column, value, **cells)


def view_rows(source: Source, item: tuple[str, Column]) -> Iterator[Row]:
    """Yield a layer's InfoNCE and DiME over seeded blocks of one size, and LiDAR.

    The last partial block is left out and counted. The error is that over blocks, of a single block
    that of the jackknife over groups of its samples.
    """
    viewed = np.isin(source.sample, source.sample[source.view > 0])
    total = len(np.unique(source.sample[viewed]))
    plan = {"row": range(len(viewed)), "sample": source.sample, "view": source.view}
    rows = pd.DataFrame(plan)[viewed & source.fine]
    rows = rows.pivot(index="sample", columns="view", values="row").dropna()
    groups = rows.to_numpy(dtype=np.int64)
    n, number = groups.shape
    if n < 2:
        return
    size = BLOCK if n >= BLOCK else min(n, SMALL_BLOCK)
    order = np.random.default_rng([source.options.seed, 2]).permutation(n)
    blocks = [*order[: n - n % size].reshape(-1, size)]
    pooling, column = item
    states = source.run.states(pooling, (column,), groups.T.reshape(-1))[:]
    views = states[:, 0].view(number, n, -1).transpose(0, 1)
    cells: Row = {"total": total, "pooling": pooling}
    errors = _by_block(source, views, _jackknifed(blocks), is_rough=True)
    for (name, more), values in _by_block(source, views, blocks).items():
        value, error, _ = mean(torch.tensor(values))
        if len(blocks) == 1:
            error = _jackknife(errors[name, more])
        cells |= {"n": size * len(blocks), "variant": f"N={size}{more}"}
        yield source.row(name, column, value, error, **cells)
    for metric, how in source.wanted(factors.FromAllViews):
        value = float(how.compute(views))
        cells |= {"n": n, "variant": f"q={number}"}
        yield source.row(metric.name, column, value, **cells)


def _by_block(
    source: Source, views: Tensor, blocks: Iterable[Numbers], is_rough: bool = False
) -> dict[tuple[str, str], list[float]]:
    """Return by metric and end of its variant the values of blocks of views `[N, views, D]`, or rough ones."""
    values = defaultdict[tuple[str, str], list[float]](list)
    for block in blocks:
        # one at a time: what their metrics share takes memory
        first, second = views[block, 0].double(), views[block, 1].double()
        pair = factors.Views(first, second, source.options.seed)
        for metric, how in source.wanted(factors.FromViews):
            for variant, compute, rough in how.measured(source.options.alpha):
                value = rough(pair) if is_rough else compute(pair)
                values[metric.name, variant].append(float(value))
    return values


def _jackknifed(blocks: list[Numbers]) -> Iterator[Numbers]:
    """Yield a single block without each group of its samples in turn; nothing where it is too small, or one of many."""
    block = blocks[0]
    if len(blocks) > 1 or len(block) < 2 * GROUPS:
        return
    group = np.arange(len(block)) % GROUPS  # blocks are shuffled
    for left_out in range(GROUPS):
        yield block[group != left_out]


def _jackknife(values: list[float]) -> float:
    """Return the error of one block, from its values without each group (Efron and Tibshirani 1993, section 11.5)."""
    if not values:
        return math.nan
    return float(np.sqrt((GROUPS - 1) * np.array(values).var()))


def pair_items(source: Source) -> list[tuple[str, tuple[str, FromPairs]]]:
    """Return pooling, name and form of each similarity."""
    measures = list[tuple[str, FromPairs]]()
    for metric, record in source.wanted(FromPairs):
        measures += product([metric.name], record.forms(source.options))
    return [*product(source.pair_poolings, measures)]


def pair_rows(source: Source, item: tuple[str, tuple[str, FromPairs]]) -> Iterator[Row]:
    """Yield a similarity of all pairs, NaN where samples are too few; each sample's cosine to the last is written."""
    pooling, (name, how) = item
    columns, rows = source.run.columns, how.rows(source.rows)
    states = source.run.states(pooling, columns, rows)
    if how.lack(len(rows), states.shape[2]) is None:
        found = how.measured(states)
    else:
        none = torch.full([len(columns)] * 2, math.nan, dtype=torch.float64)
        found = none, none, torch.full_like(none, len(rows))
    yield from of_pairs(source, name, how.variant, pooling, found)
    if name == "cosine_similarity" and pooling == source.pair_poolings[0]:
        values = cosine_to(states, center=CENTERING.values[how.variant])
        cells = {"metric": "cosine_to_last", "variant": how.variant, "pooling": pooling}
        frames = _by_sample(source, cells, columns, values)
        source.folder.write_table(f"samples.cosine_{how.variant}", frames)


def of_pairs(
    source: Source, name: str, variant: str, pooling: str, numbers: Found
) -> Iterator[Row]:
    """Yield the rows of one similarity of every two layers, from values, errors and numbers `[L, L]`."""
    cells: Row = {"variant": variant, "pooling": pooling}
    pairs = product(source.run.columns, repeat=2)
    flat = [part.flatten().tolist() for part in numbers]
    for (a, b), value, error, n in zip(pairs, *flat, strict=True):
        cells |= {"layer_b": b.layer, "site_b": b.site}
        yield source.row(name, a, value, error, int(n), **cells)


def path_items(source: Source) -> list[tuple[str, tuple[Metric, FromPath]]]:
    """Return pooling and metric."""
    return [*product(source.pair_poolings, source.wanted(FromPath))]


def path_rows(
    source: Source, item: tuple[str, tuple[Metric, FromPath]]
) -> Iterator[Row]:
    """Yield how far each sample's vector goes from layer to layer."""
    pooling, (metric, how) = item
    layers = tuple(map(partial(Column, "raw"), source.run.layers))
    states = source.run.states(pooling, layers, source.rows)
    by_layer = how.measured(states).T
    for column, values in zip(layers[1:], by_layer, strict=True):
        yield source.row(metric.name, column, *mean(values), pooling=pooling)


def _by_sample(
    source: Source, cells: Row, columns: Sequence[Column], values: Tensor
) -> Iterator[pd.DataFrame]:
    """Yield the values `[N, layers]` of samples, a part of them at a time."""
    names = pd.DataFrame(columns, columns=["site", "layer"])
    for start in range(0, len(values), PART):
        some = pd.DataFrame(
            {"sample": source.sample[source.rows][start : start + PART]}
        )
        frame = some.merge(names, how="cross").assign(**cells)
        frame["value"] = values[start : start + PART].flatten().numpy()
        yield frame


def one_item(_: Source) -> list[None]:
    """Return the one item of a table that is made at once."""
    return [None]


def lens_rows(source: Source, _: None) -> Iterator[Row]:
    """Yield accuracy and perplexity by layer where the answers are known, and where predictions stop changing."""
    tensors, drawn = _read_by_head(source)
    if "prediction" not in tensors or not tensors["prediction"].shape[1]:
        return
    nll = tensors.get("nll") if source.run.info["model"]["language_model"] else None
    layers = source.run.layers
    readings = Readings(tensors["prediction"], tensors.get("target"), nll, layers)
    for metric, how in source.wanted(FromReadings):
        if how.compute is None:
            continue
        for i, estimate in how.compute(readings):
            column = Column(source.run.final, layers[i])
            yield source.row(metric.name, column, *estimate, total=drawn)


def _read_by_head(source: Source) -> tuple[dict[str, Tensor], int]:
    """Return what shards hold of the lens by name, of finite samples, and how many tokens or samples these are."""
    parts, drawn = defaultdict[str, list[Tensor]](list), 0
    for shard, fine in source.original_shards():
        tensors = {}
        with source.folder.shard(shard) as file:
            for key in file.keys():  # noqa: SIM118  # it is no mapping
                if key.startswith(LENS):
                    tensors[key.removeprefix(LENS)] = file.get_tensor(key)
        kept = torch.from_numpy(fine)
        if "row" in tensors:
            kept = kept[tensors["row"].long()]
        if tensors:
            drawn += len(kept)
        for name, tensor in tensors.items():
            parts[name].append(tensor[..., kept])
    return {name: torch.cat(shards, -1) for name, shards in parts.items()}, drawn


class Step(NamedTuple):
    """How a table is made: its items, and what each gives."""

    items: Callable[[Source], Sequence[Any]]
    rows: Callable[[Source, Any], Iterator[Part]]


STEPS: dict[Needs, Step] = {
    "labels": Step(label_items, label_rows),
    "tokens": Step(token_items, token_rows),
    "pooled": Step(layer_items, pooled_rows),
    "views": Step(layer_items, view_rows),
    "path": Step(path_items, path_rows),
    "pairs": Step(pair_items, pair_rows),
    "lens": Step(one_item, lens_rows),
}
"""Tables by what they need; where processes share them, small items fill the time after the long ones."""

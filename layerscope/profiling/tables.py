"""From the run folder to the table: every metric by layer, without the model."""

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, product
from operator import itemgetter
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from layerscope.core.processes import Team
from layerscope.core.progress import Reporter
from layerscope.metrics import factors
from layerscope.metrics.arrays import Estimate, mean
from layerscope.metrics.cosine_similarity import cosine_to
from layerscope.metrics.pairs import CENTERING, Found, FromPairs, FromPath
from layerscope.metrics.readings import FromReadings, Readings
from layerscope.profiling.labels import label_rows
from layerscope.profiling.options import PassOptions
from layerscope.profiling.source import Numbers, Row, Source
from layerscope.runs import COLUMNS, Run
from layerscope.runs.registry import Needs, about, is_scalar, parse_key
from layerscope.runs.states import Column

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
    source = Source(run, options, team)
    todo: list[Needs] = team.meet(
        [
            kind
            for kind in STEPS
            if options.wants(kind) and not run.folder.has_table(kind)
        ]
    )[0]
    made = deque[tuple[Needs, Any]]()
    with reporter.bar("metrics", len(todo)) as advance:
        for kind in todo:
            source.turn()
            source.kept = []
            made_here = [
                (source.block, row) for row in STEPS[kind](source) if source.is_ours
            ]
            made.append((kind, team.bring((made_here, source.kept))))
            while (
                team.leads and made and (kind is todo[-1] or team.is_ready(made[0][1]))
            ):
                done, meeting = made.popleft()
                _write(run, done, team.found(meeting))
                advance(1)


def _write(run: Run, kind: Needs, parts: Iterable[Any]) -> None:
    """Write a kind's table, and those of its samples, in the order in which one process makes them."""
    rows, kept = (
        sorted(chain(*part), key=itemgetter(0)) for part in zip(*parts, strict=True)
    )
    for table in dict.fromkeys(name for _, name, _ in kept):
        run.folder.write_table(
            table, (frame for _, name, frame in kept if name == table)
        )
    frame = pd.DataFrame([row for _, row in rows], columns=list(COLUMNS)).astype(
        COLUMNS
    )
    run.folder.write_table(kind, frame.assign(part=run.info["model"]["part"]))


def token_rows(source: Source) -> Iterator[Row]:
    """Yield mean and standard error of every per-sample value by layer; undefined ones are left out and counted."""
    first, _ = next(source.original_shards())
    with source.folder.shard(first) as file:
        keys = sorted(filter(is_scalar, file.keys()), key=_order)
    for key in source.share(keys):
        name, *_ = parse_key(key)
        parts = []
        for shard, fine in source.original_shards():
            with source.folder.shard(shard) as file:
                parts.append(file.get_tensor(key)[:, fine])
        layers = torch.cat(parts, 1).double()
        if has_values(name, layers):
            yield from of_tokens(source, key, map(mean, layers))


def _order(key: str) -> tuple[str, int, str, str]:
    """Return what sorts keys: whole samples, which a metric means by itself, before prefixes."""
    name, variant, site = parse_key(key)
    whole, _, prefix = (variant or "").partition(",prefix=")
    return name, int(prefix or 0), whole, site


def has_values(name: str, layers: Tensor) -> bool:
    """Return whether values of a metric of tokens are shown: a rare one is left out where it is zero everywhere."""
    how = about(name).how
    return not (isinstance(how, factors.FromTokens) and how.rare) or bool(layers.any())


def of_tokens(source: Source, key: str, layers: Iterable[Estimate]) -> Iterator[Row]:
    """Yield the rows of one per-sample value from its mean over samples at each layer."""
    name, variant, site = parse_key(key)
    for layer, estimate in zip(source.run.layers_at(site), layers, strict=False):
        yield source.row(name, Column(site, layer), *estimate, variant=variant)


def pooled_rows(source: Source) -> Iterator[Row]:
    """Yield every metric of the pooled states by layer; those that are not defined for so few samples are left out."""
    for pooling, column, states in source.layers():
        yield from of_rows(source, factors.StoredRows(states), pooling, column)


def of_rows(
    source: Source, rows: factors.Rows, pooling: str, column: Column
) -> Iterator[Row]:
    """Yield every metric of the pooled states of one layer."""
    for metric, how in source.wanted(factors.FromRows):
        if how.lack(rows.count, rows.width) is None:
            for variant, value in how.measured(rows, source.options):
                yield source.row(
                    metric.name,
                    column,
                    value,
                    n=rows.count,
                    variant=variant,
                    pooling=pooling,
                )


def view_rows(source: Source) -> Iterator[Row]:
    """Yield InfoNCE and DiME over seeded blocks of one size (the last partial one is left out and counted), LiDAR.

    The error is that over blocks, of a single block that of the jackknife over groups of its
    samples.
    """
    plan = pd.DataFrame(
        {
            "row": np.arange(len(source.view)),
            "sample": source.sample,
            "view": source.view,
        }
    )
    plan = plan[source.fine & np.isin(source.sample, source.sample[source.view > 0])]
    groups = (
        plan.pivot(index="sample", columns="view", values="row")
        .dropna()
        .to_numpy(dtype=np.int64)
    )
    n, total = len(groups), len(np.unique(source.sample[source.view > 0]))
    if n < 2:
        return
    size = BLOCK if n >= BLOCK else min(n, SMALL_BLOCK)
    order = np.random.default_rng([source.options.seed, 2]).permutation(n)
    blocks = [order[i : i + size] for i in range(0, n - size + 1, size)]
    for pooling, column, _ in source.layers():
        states = source.run.states(pooling, (column,), groups.T.reshape(-1))[:]
        views = states[:, 0].view(groups.shape[1], n, -1).transpose(0, 1)
        cells: Row = {"total": total, "pooling": pooling}
        for name, more, value, error in _in_blocks(source, views, blocks):
            yield source.row(
                name,
                column,
                value,
                error,
                size * len(blocks),
                variant=f"N={size}{more}",
                **cells,
            )
        for metric, how in source.wanted(factors.FromAllViews):
            value = float(how.compute(views))
            yield source.row(
                metric.name, column, value, n=n, variant=f"q={views.shape[1]}", **cells
            )


def _in_blocks(
    source: Source, views: Tensor, blocks: list[Numbers]
) -> Iterator[tuple[str, str, float, float]]:
    """Yield metric, end of its variant, mean and error over blocks of views `[N, views, D]`."""

    def pairs(blocks: Iterable[Numbers]) -> Iterator[factors.Views]:
        """Yield the samples and first views of each block, one at a time: what their metrics share takes memory."""
        for block in blocks:
            yield factors.Views(
                views[block, 0].double(), views[block, 1].double(), source.options.seed
            )

    computed = [
        (metric.name, variant, compute, rough)
        for metric, how in source.wanted(factors.FromViews)
        for variant, compute, rough in how.measured(source.options.alpha)
    ]
    values = [
        [float(compute(pair)) for *_, compute, _ in computed] for pair in pairs(blocks)
    ]
    once = len(blocks) == 1
    parts = [
        [float(rough(pair)) for *_, rough in computed]
        for pair in pairs(_jackknifed(blocks[0]) if once else [])
    ]
    for i, (name, variant, _, _) in enumerate(computed):
        value, error, _ = mean(torch.tensor([row[i] for row in values]))
        yield (
            name,
            variant,
            value,
            _jackknife([row[i] for row in parts]) if once else error,
        )


def _jackknifed(block: Numbers) -> list[Numbers]:
    """Return the block without each group of its samples in turn; nothing where it is too small."""
    group = np.arange(len(block)) % GROUPS  # blocks are shuffled
    return (
        [block[group != left_out] for left_out in range(GROUPS)]
        if len(block) >= 2 * GROUPS
        else []
    )


def _jackknife(values: list[float]) -> float:
    """Return the error of one block, from its values without each group (Efron and Tibshirani 1993, section 11.5)."""
    return float(np.sqrt((GROUPS - 1) * np.array(values).var())) if values else math.nan


def pair_rows(source: Source) -> Iterator[Row]:
    """Yield the similarities of all pairs, NaN where samples are too few, and keep each sample's cosine to the last."""
    poolings, columns = (
        [*source.run.info["pair_pooling"], *source.poolings],
        source.run.columns,
    )
    if "cosine_similarity" in source.options.metrics and source.is_ours:
        source.folder.write_table(
            "samples.cosine_to_last", _cosines_to_last(source, poolings[0])
        )
    measures = [
        (metric, form)
        for metric, how in source.wanted(FromPairs)
        for form in how.forms(source.options)
    ]
    for pooling, (metric, how) in source.share(product(poolings, measures)):
        rows = how.rows(source.rows)
        states = source.run.states(pooling, columns, rows)
        if how.lack(len(rows), states.shape[2]) is None:
            values, errors, counts = how.measured(states)
        else:
            values = errors = torch.full(
                (len(columns), len(columns)), math.nan, dtype=torch.float64
            )
            counts = torch.full_like(values, len(rows))
        yield from of_pairs(
            source, metric.name, how.variant, pooling, (values, errors, counts)
        )


def of_pairs(
    source: Source, name: str, variant: str, pooling: str, numbers: Found
) -> Iterator[Row]:
    """Yield the rows of one similarity of every two layers, from values, errors and numbers `[L, L]`."""
    values, errors, counts = (part.tolist() for part in numbers)
    for (i, a), (j, b) in product(enumerate(source.run.columns), repeat=2):
        other: Row = {
            "layer_b": b.layer,
            "site_b": b.site,
            "variant": variant,
            "pooling": pooling,
        }
        yield source.row(
            name, a, values[i][j], errors[i][j], int(counts[i][j]), **other
        )


def _cosines_to_last(source: Source, pooling: str) -> Iterator[pd.DataFrame]:
    """Yield each sample's cosine to the last layer."""
    for name in source.options.cosine:
        values = cosine_to(
            source.run.states(pooling, source.run.columns, source.rows),
            center=CENTERING.values[name],
        )
        yield from _by_sample(
            source, "cosine_to_last", name, pooling, source.run.columns, values
        )


def path_rows(source: Source) -> Iterator[Row]:
    """Yield how far each sample's vector goes from layer to layer, and keep each sample's value."""
    poolings = [*source.run.info["pair_pooling"], *source.poolings]
    layers = tuple(Column("raw", layer) for layer in source.run.layers)
    for pooling, (metric, how) in source.share(
        product(poolings, source.wanted(FromPath))
    ):
        for variant, values in how.measured(
            source.run.states(pooling, layers, source.rows), source.options
        ):
            columns = (
                layers[how.first :][: values.shape[1]] if metric.curve else layers[-1:]
            )
            for column, by_sample in zip(columns, values.T, strict=True):
                yield source.row(
                    metric.name,
                    column,
                    *mean(by_sample),
                    variant=variant,
                    pooling=pooling,
                )
            if pooling == poolings[0]:
                for part in _by_sample(
                    source, metric.name, variant, pooling, columns, values
                ):
                    source.keep("samples.path", part)


def _by_sample(
    source: Source,
    metric: str,
    variant: str | None,
    pooling: str,
    columns: Sequence[Column],
    values: Tensor,
) -> Iterator[pd.DataFrame]:
    """Yield the values `[N, layers]` of samples, a part of them at a time."""
    cells = {"metric": metric, "variant": variant, "pooling": pooling}
    for start in range(0, len(values), PART):
        some = source.sample[source.rows][start : start + PART]
        layer, site = (
            np.tile(each, len(some))
            for each in zip(*((c.layer, c.site) for c in columns), strict=True)
        )
        value = values[start : start + PART].reshape(-1).numpy()
        samples = np.repeat(some, len(columns))
        frame = pd.DataFrame(
            {"sample": samples, **cells, "layer": layer, "site": site, "value": value}
        )
        yield frame.astype({"variant": "string"})  # of parts without one, too


def lens_rows(source: Source) -> Iterator[Row]:
    """Yield accuracy and perplexity by layer where the answers are known, and where predictions stop changing."""
    readings_of, drawn = _read_by_head(source)
    if "prediction" not in readings_of or not readings_of["prediction"].shape[1]:
        return
    nll = readings_of.get("nll") if source.run.info["model"]["language_model"] else None
    layers = source.run.layers
    readings = Readings(
        readings_of["prediction"], readings_of.get("target"), nll, layers
    )
    for metric, how in source.wanted(FromReadings):
        for i, estimate in how.compute(readings) if how.compute else ():
            column = Column(source.run.final, layers[i])
            yield source.row(metric.name, column, *estimate, total=drawn)


def _is_of_lens(name: str) -> bool:
    return name.startswith(LENS)


def _read_by_head(source: Source) -> tuple[dict[str, Tensor], int]:
    """Return what shards hold of the lens by name, of finite samples, and how many tokens or samples these are."""
    parts, drawn = dict[str, list[Tensor]](), 0
    for shard, fine in source.original_shards() if source.is_ours else ():  # one block
        with source.folder.shard(shard) as file:
            names = sorted(filter(_is_of_lens, file.keys()))
            tensors = {name.removeprefix(LENS): file.get_tensor(name) for name in names}
        kept = torch.from_numpy(fine)
        if "row" in tensors:
            kept = kept[tensors["row"].long()]
        drawn += len(kept) if tensors else 0
        for name, tensor in tensors.items():
            parts.setdefault(name, []).append(tensor[..., kept])
    return {name: torch.cat(shards, -1) for name, shards in parts.items()}, drawn


STEPS: dict[Needs, Callable[[Source], Iterator[Row]]] = {
    "labels": label_rows, "tokens": token_rows, "pooled": pooled_rows, "views": view_rows, "path": path_rows,
    "pairs": pair_rows, "lens": lens_rows,
}  # fmt: skip
"""Steps by what they need; where processes share them, small ones fill the time after the long ones."""

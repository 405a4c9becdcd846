"""The work of `compare`: similarity of layers across runs, differences of metrics by depth, checkpoints by layer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd

from layerscope.comparison.comparison import STORE, Comparison, Member
from layerscope.comparison.differences import chosen_metrics, difference_rows
from layerscope.comparison.matching import Sides, opened, sides_of
from layerscope.comparison.measured import Key, Measured, PerSample, kept_pooling, measured
from layerscope.comparison.series import steps
from layerscope.comparison.similarities import chosen_similarities, layer_rows, pair_rows
from layerscope.core.options import Asked
from layerscope.core.progress import Console, Silent, Teller
from layerscope.runs.names import run_names

Row = dict[str, Any]


def compare_runs(asked: Asked) -> Comparison:
    """Do what `compare` is asked for."""
    place = None if asked.out is None else STORE.folder(asked.out)
    ready = opened(asked.runs)
    order = steps(ready)
    sides = sides_of(ready, asked.pooling, asked.site)
    notes = list(sides.notes)
    if sides.is_series and order is not None:
        ranked = sorted(range(len(ready)), key=order.__getitem__)
        if ranked != list(range(len(ready))):
            ready, order = [ready[i] for i in ranked], [order[i] for i in ranked]
            sides = sides_of(ready, asked.pooling, asked.site)
            notes = [*sides.notes, "the checkpoints are in the order of their steps"]
    names = run_names(ready)
    kept = kept_pooling(sides) if asked.pooling is None else None
    known = [measured(side, kept) for side in sides]
    keys, left = chosen_metrics(sides, known, asked.metrics)
    chosen = chosen_similarities(sides, asked.similarity)
    teller: Teller = Console() if asked.progress else Silent()
    rows = [
        *_similarities(sides, names, chosen, teller),
        *_differences(sides, names, known, keys),
        *_values(sides, names, known, keys),
    ]
    found = Comparison(
        tuple(_member(names[i], sides, i, order if sides.is_series else None) for i in range(len(sides))),
        str(ready[0].info["data"]["name"]), sides.n, sides.left_out, sides.is_series, (*notes, *left),
        pd.DataFrame(rows),
    )  # fmt: skip
    if place is not None:
        found.save(place)
    return found


def _similarities(sides: Sides, names: list[str], chosen: tuple[str, ...], teller: Teller) -> Iterator[Row]:
    """Yield the rows of every run against the first, and in a series those of each layer through the checkpoints."""
    layers = sides[0].columns if sides.is_series else ()
    total = sides.n + sides.left_out
    with teller.bar("similarity", len(chosen) * (len(sides) - 1 + len(layers))) as advance:
        for name in chosen:
            for i in range(1, len(sides)):
                for row in pair_rows(sides[0], sides[i], name):
                    yield {
                        "kind": "similarity",
                        "run": names[0],
                        "run_b": names[i],
                        **row,
                        "n_skipped": total - row["n"],
                    }
                advance(1)
            for column in layers:
                for i, j, row in layer_rows(sides, name, column):
                    yield {
                        "kind": "counterpart",
                        "run": names[i],
                        "run_b": names[j],
                        **row,
                        "n_skipped": total - row["n"],
                    }
                advance(1)


def _differences(sides: Sides, names: list[str], known: list[dict[Key, Measured]], keys: list[Key]) -> Iterator[Row]:
    first = PerSample(sides[0])
    for i in range(1, len(sides)):
        samples = first, PerSample(sides[i])
        for row in difference_rows(sides[0], sides[i], (known[0], known[i]), samples, keys):
            yield {"kind": "difference", "run": names[0], "run_b": names[i], **row}


def _values(sides: Sides, names: list[str], known: list[dict[Key, Measured]], keys: list[Key]) -> Iterator[Row]:
    """Yield the rows of the runs' own tables that are compared."""
    taken = ("layer", "site", "value", "stderr", "n", "n_skipped")
    for name, found in zip(names, known, strict=True):
        for metric, variant in keys:
            entry = found[metric, variant]
            for row in entry.rows.values():
                own = {"metric": metric, "variant": variant, "pooling": entry.pooling}
                yield {"kind": "value", "run": name, **own, **{key: row[key] for key in taken}}


def _member(name: str, sides: Sides, place: int, order: list[int] | None) -> Member:
    side, model = sides[place], sides[place].run.info["model"]
    return Member(
        name, str(side.run.path), str(model["name"]), model.get("revision"), side.depth, side.width, side.pooling,
        side.run.final, None if order is None else order[place],
    )  # fmt: skip

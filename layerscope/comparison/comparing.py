"""The work of `compare`: similarity of layers across runs, differences of metrics by depth, checkpoints by layer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import Any

import pandas as pd

from layerscope.comparison.comparison import STORE, Comparison, Member
from layerscope.comparison.differences import chosen_metrics, difference_rows
from layerscope.comparison.matching import Side, is_series, opened, sides_of, steps
from layerscope.comparison.measured import Key, Measured, measured
from layerscope.comparison.similarities import chosen_similarities, similarity_rows
from layerscope.core.options import Asked
from layerscope.core.progress import reporting


def compare_runs(asked: Asked) -> Comparison:
    """Do what `compare` is asked for."""
    folder = None if asked.out is None else STORE.folder(asked.out)
    runs = opened(asked.runs)
    series = is_series(runs)
    order = steps(runs) if series else None
    ordered = [] if order is None or order == sorted(order) else ["the checkpoints are sorted by their steps"]
    if order is not None:
        order, runs = map(list, zip(*sorted(zip(order, runs, strict=True), key=itemgetter(0)), strict=True))
    sides, notes = sides_of(runs, asked.pooling, asked.site)
    known = measured(sides, asked.pooling)
    keys, left = chosen_metrics(sides, known, asked.metrics)
    chosen = chosen_similarities(sides, asked.similarity)
    rows = [
        *similarity_rows(sides, chosen, series, reporting(asked.progress)),
        *difference_rows(sides, known, keys),
        *_values(sides, known, keys),
    ]
    members = tuple(_member(side, order[i] if order else None) for i, side in enumerate(sides))
    found = Comparison(
        members, str(runs[0].info["data"]["name"]), len(sides[0].rows), sides[0].left_out, series,
        (*notes, *ordered, *left), pd.DataFrame(rows),
    )  # fmt: skip
    if folder is not None:
        found.save(folder)
    return found


def _values(sides: Sequence[Side], known: Sequence[dict[Key, Measured]], keys: list[Key]) -> Iterator[dict[str, Any]]:
    """Yield the rows of the runs' own tables that are compared."""
    taken = ("layer", "site", "value", "stderr", "n", "n_skipped")
    for side, found in zip(sides, known, strict=True):
        for metric, variant in keys:
            entry = found[metric, variant]
            for row in entry.rows.values():
                own = {"metric": metric, "variant": variant, "pooling": entry.pooling}
                yield {"kind": "value", "run": side.name, **own, **{key: row[key] for key in taken}}


def _member(side: Side, step: int | None) -> Member:
    run, model = side.run, side.run.info["model"]
    return Member(
        side.name, str(run.path), str(model["name"]), model.get("revision"), side.depth, side.width, side.pooling,
        run.final, step,
    )  # fmt: skip

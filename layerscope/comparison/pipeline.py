"""The work of `compare`: similarity of layers across runs, differences of metrics by depth, checkpoints by layer."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from operator import itemgetter
from pathlib import Path
from typing import Any, TypeAlias

import pandas as pd
import torch
from torch import Tensor

from layerscope.comparison.comparison import STORE, Comparison, Member
from layerscope.comparison.differences import chosen_metrics, difference_rows, measured
from layerscope.comparison.matching import Side, is_series, opened, sides_of, steps
from layerscope.core.errors import LayerscopeError, choices
from layerscope.core.options import Asked, declared
from layerscope.core.progress import Reporter, reporting
from layerscope.metrics.pairs import Found, FromPairs
from layerscope.profiling import profile
from layerscope.runs import Run
from layerscope.runs.opening import run_of
from layerscope.runs.registry import measured as registered
from layerscope.runs.states import Column, StoredStates

Row = dict[str, Any]
Form: TypeAlias = tuple[str, FromPairs]
"""A similarity by name, in one of its forms."""
SIMILARITIES = {metric.name: how for metric, how in registered(FromPairs)}


def compare_runs(asked: Asked) -> Comparison:
    """Do what `compare` is asked for."""
    folder = None if asked.out is None else STORE.folder(asked.out)
    runs = opened(_profiled(asked), asked.paired)
    series = is_series(runs)
    order = steps(runs) if series else None
    ordered = (
        []
        if order is None or order == sorted(order)
        else ["the checkpoints are sorted by their steps"]
    )
    if order is not None:
        order, runs = map(
            list, zip(*sorted(zip(order, runs, strict=True), key=itemgetter(0)), strict=True)
        )
    sides, notes = sides_of(runs, asked.pooling, asked.site)
    known = measured(sides, asked.pooling)
    keys, left = chosen_metrics(sides, known, asked.metrics)
    names = chosen_similarities(sides, asked.similarity, asked.paired)
    chosen = [(name, form) for name in names for form in SIMILARITIES[name].forms(asked)]
    rows = [
        *similarity_rows(sides, chosen, series, asked.paired, reporting(asked.progress)),
        *difference_rows(sides, known, keys),
        *(
            row
            for side, own in zip(sides, known, strict=True)
            for key in keys
            for row in own[key].values(side.name, key)
        ),
    ]
    members = tuple(
        Member(
            side.name,
            str(side.run.path),
            str(side.run.info["model"]["name"]),
            side.run.info["model"].get("revision"),
            side.depth,
            side.width,
            side.pooling,
            side.run.final,
            step,
        )
        for side, step in zip_longest(sides, order or ())
    )
    found = Comparison(
        members,
        " and ".join(dict.fromkeys(str(run.info["data"]["name"]) for run in runs)),
        len(sides[0].rows),
        sides[0].left_out,
        series,
        (*notes, *ordered, *left),
        pd.DataFrame(rows),
    )
    if folder is not None:
        found.save(folder)
    return found


def _profiled(asked: Asked) -> Sequence[Run | str | Path]:
    """Return the runs that were given; with `data`, a model is profiled over them."""
    if asked.data is None and asked.samples is not None:
        raise LayerscopeError(
            "`samples` are drawn from `data`, over which models are profiled: give both"
        )
    given: Sequence[Run | str | Path] = asked.runs
    if asked.data is None:
        return given
    how = {
        "samples": asked.samples or declared(profile)["samples"].default,
        "progress": asked.progress,
    }
    return [run_of(one) or profile(one, asked.data, **how) for one in given]


def chosen_similarities(
    sides: Sequence[Side], asked: Sequence[str] | None, paired: bool
) -> tuple[str, ...]:
    """Return the similarities to compute: those asked for, else CKA, and cosine where all widths are equal.

    Of two towers cosine comes first, and the modality gap is added.

    Raises `LayerscopeError` for an unknown name, and for cosine where widths differ.
    """
    widths = {side.width for side in sides}
    if asked is None:
        if len(widths) > 1:
            return ("cka",)
        return (
            ("cosine_similarity", "cka", "modality_gap") if paired else ("cka", "cosine_similarity")
        )
    for name in asked:
        if name not in SIMILARITIES:
            raise LayerscopeError(
                f"similarity {name!r} does not exist{choices(name, tuple(SIMILARITIES))}"
            )
        if SIMILARITIES[name].one_width and len(widths) > 1:
            listed = " and ".join(str(width) for width in sorted(widths))
            raise LayerscopeError(
                f"{name} needs states of one width, and these are {listed} wide: take cka"
            )
    return tuple(dict.fromkeys(asked))


def similarity_rows(
    sides: Sequence[Side], chosen: Sequence[Form], series: bool, paired: bool, reporter: Reporter
) -> Iterator[Row]:
    """Yield the rows of every run against the first, in a series those of each layer through the checkpoints.

    Where the runs are `paired` towers, each is compared with itself too.
    """
    columns, last = sides[0].columns if series else (), len(sides) - 1
    with reporter.bar("similarity", len(chosen) * (last + len(columns) + 2 * paired)) as advance:
        for form in chosen:
            how = form[1]
            taken = [replace(side, rows=how.rows(side.rows)) for side in sides]
            for other in taken[1:]:
                yield from _of_two("similarity", form, taken[0], other)
                advance(1)
            for side in taken if paired else ():
                yield from _of_two("within", form, side, side)
                advance(1)
            for column in columns:
                states = tuple(
                    side.run.states(side.pooling, (column,), side.rows) for side in taken
                )
                found = how.measured(Checkpoints(states))
                for i, side in enumerate(taken):
                    for j in dict.fromkeys((last, max(0, i - 1))):
                        yield _row(
                            "counterpart", form, (side, taken[j]), (column, column), found, i, j
                        )
                advance(1)


def _of_two(kind: str, form: Form, a: Side, b: Side) -> Iterator[Row]:
    name, how = form
    if len(a.rows) < (needed := how.needed(max(a.width, b.width))):
        raise LayerscopeError(
            f"{name} is not defined for {len(a.rows):,} samples: at this width it needs {needed:,}; profile more, or "
            "choose another with `similarity`"
        )
    found = how.measured(a.states, None if a is b else b.states)
    for i, own in enumerate(a.columns):
        for j, other in enumerate(b.columns):
            yield _row(kind, form, (a, b), (own, other), found, i, j)


def _row(
    kind: str,
    form: Form,
    sides: tuple[Side, Side],
    columns: tuple[Column, Column],
    found: Found,
    i: int,
    j: int,
) -> Row:
    (a, b), (own, other) = sides, columns
    value, stderr, n = (float(part[i, j]) for part in found)
    return {
        "kind": kind,
        "run": a.name,
        "run_b": b.name,
        "metric": form[0],
        "variant": form[1].variant,
        "layer": own.layer,
        "site": own.site,
        "layer_b": other.layer,
        "site_b": other.site,
        "pooling": a.pooling,
        "pooling_b": b.pooling,
        "value": value,
        "stderr": stderr,
        "n": int(n),
        "n_skipped": a.total - int(n),
    }


@dataclass(frozen=True)
class Checkpoints:
    """One layer of several checkpoints as a lazy array [N, checkpoints, D]."""

    states: tuple[StoredStates, ...]

    @property
    def shape(self) -> tuple[int, int, int]:
        """(N, checkpoints, D)."""
        n, _, width = self.states[0].shape
        return n, len(self.states), width

    def __getitem__(self, block: slice) -> Tensor:
        return torch.cat([states[block] for states in self.states], 1)

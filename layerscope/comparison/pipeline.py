"""The work of `compare`: similarity of layers across runs, differences of metrics by depth, checkpoints by layer.

Every run is compared with the first. A similarity is of every layer of one with every layer of the
other; a difference of metrics is of layers at the same share of the depth. All become rows of one
long frame, whose `kind` says what a row is.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import pandas as pd

from layerscope.comparison.comparison import COLUMNS, STORE, Comparison, Member
from layerscope.comparison.differences import (
    chosen_metrics,
    curves_of,
    difference_rows,
)
from layerscope.comparison.matching import Side, is_series, opened, sides_of
from layerscope.comparison.options import CompareOptions
from layerscope.comparison.steps import step_rows
from layerscope.core import LayerscopeError, Reporter, choices, reporting
from layerscope.metrics.linear_map import LINEAR_MAP
from layerscope.runs.registry import SIMILARITIES, Similarity

Row = dict[str, Any]
Form: TypeAlias = tuple[str, Similarity]
"""A similarity by name, in one of its forms."""


def compare_runs(options: CompareOptions) -> Comparison:
    """Compare every run with the first, or a series of checkpoints layer by layer."""
    # a folder of something else is refused before the work
    folder = options.out and STORE.folder(options.out)
    runs = opened(options.runs, options.paired)
    sides, notes = sides_of(runs, options.pooling, options.site)
    curves = [curves_of(side) for side in sides]
    keys, not_compared = chosen_metrics(sides, curves, options.metrics)
    forms = [
        (name, form)
        for name in chosen_similarities(sides, options.similarity, options.paired)
        for form in SIMILARITIES[name].forms(options.forms)
    ]
    reporter = reporting(options.progress)
    rows = [
        *similarity_rows(sides, forms, options.paired, reporter),
        *difference_rows(sides, curves, keys),
    ]
    comparison = Comparison(
        tuple(map(_member, sides)),
        " and ".join(dict.fromkeys(str(run.info["data"]["name"]) for run in runs)),
        len(sides[0].rows),
        sides[0].left_out,
        is_series(runs),
        (*notes, *not_compared),
        pd.DataFrame(rows, columns=list(COLUMNS)),
    )
    if folder is not None:
        comparison.save(folder)
    return comparison


def _member(side: Side) -> Member:
    run = side.run
    model = side.run.info["model"]
    return Member(
        side.name,
        str(run.path),
        str(model["name"]),
        model.get("revision"),
        side.depth,
        side.width,
        side.pooling,
        run.final,
    )


def chosen_similarities(
    sides: Sequence[Side], names: Sequence[str] | None, paired: bool
) -> tuple[str, ...]:
    """Return the similarities to compute: those that are named, else CKA, and cosine where all widths are equal.

    Of two towers cosine comes first, and the modality gap is added.

    Raises `LayerscopeError` for an unknown name, and for cosine where widths differ.
    """
    widths = {side.width for side in sides}
    if names is None:
        if len(widths) > 1:
            return ("cka",)
        if paired:
            return ("cosine_similarity", "cka", "modality_gap")
        return ("cka", "cosine_similarity")
    for name in names:
        if name not in SIMILARITIES:
            raise LayerscopeError(
                f"similarity {name!r} does not exist{choices(name, tuple(SIMILARITIES))}"
            )
        if SIMILARITIES[name].one_width and len(widths) > 1:
            listed = " and ".join(str(width) for width in sorted(widths))
            raise LayerscopeError(
                f"{name} needs states of one width, and these are {listed} wide: take cka"
            )
    return tuple(dict.fromkeys(names))


def similarity_rows(
    sides: Sequence[Side], forms: Sequence[Form], paired: bool, reporter: Reporter
) -> Iterator[Row]:
    """Yield the rows of every run against the first; where the runs are `paired` towers, of each against itself too."""
    steps = len(sides) - 1 + 2 * paired
    with reporter.bar("similarity", len(forms) * steps) as advance:
        for form in forms:
            name, how = form
            thinned = [replace(side, rows=how.rows(side.rows)) for side in sides]
            first, *others = thinned
            for other in others:
                yield from _of_two("similarity", form, first, other)
                if name == LINEAR_MAP.name and not paired:
                    yield from step_rows(first, other)
                advance(1)
            if not paired:
                continue
            for side in (first, *others):
                yield from _of_two("within", form, side, side)
                advance(1)


def _of_two(kind: str, form: Form, a: Side, b: Side) -> Iterator[Row]:
    """Yield the similarity of every layer of one run with every layer of the other."""
    name, how = form
    needed = how.needed(max(a.width, b.width))
    if len(a.rows) < needed:
        raise LayerscopeError(
            f"{name} is not defined for {len(a.rows):,} samples: at this width it needs {needed:,}; profile more, or "
            "choose another with `similarity`"
        )
    other_states = None
    if a is not b:
        other_states = b.states
    numbers = how.measured(a.states, other_states)
    for i, column in enumerate(a.columns):
        for j, other in enumerate(b.columns):
            value, stderr, n = (float(part[i, j]) for part in numbers)
            yield {
                "kind": kind,
                "run": a.name,
                "run_b": b.name,
                "metric": name,
                "variant": how.variant,
                "layer": column.layer,
                "site": column.site,
                "layer_b": other.layer,
                "site_b": other.site,
                "pooling": a.pooling,
                "pooling_b": b.pooling,
                "value": value,
                "stderr": stderr,
                "n": int(n),
                "n_skipped": a.total - int(n),
            }

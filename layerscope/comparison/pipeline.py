"""The work of `compare`: similarity of layers across runs, differences of metrics by depth, checkpoints by layer.

Every run is compared with the first. A similarity is of every layer of one with every layer of the
other; a difference of metrics is of layers at the same share of the depth. All become rows of one
long frame, whose `kind` says what a row is.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from layerscope.comparison.comparison import COLUMNS, STORE, Comparison, Member
from layerscope.comparison.differences import (
    chosen_metrics,
    curves_of,
    difference_rows,
)
from layerscope.comparison.matching import Side, is_series, notes_on, opened, sides_of
from layerscope.comparison.options import CompareOptions
from layerscope.comparison.steps import step_rows
from layerscope.core import LayerscopeError, Reporter, choices, reporting
from layerscope.metrics.linear_map import LINEAR_MAP
from layerscope.runs.registry import SIMILARITIES, Similarity

Row = dict[str, Any]


def compare_runs(options: CompareOptions) -> Comparison:
    """Compare every run with the first, or a series of checkpoints layer by layer."""
    if options.out is not None:
        # a folder of something else is refused before the work
        STORE.folder(options.out)
    runs = opened(options.runs, options.paired)
    sides = [*sides_of(runs, options.pooling, options.site)]
    curves = [curves_of(side) for side in sides]
    keys, not_compared = chosen_metrics(sides, curves, options.metrics)
    forms = [
        (name, similarity)
        for name in chosen_similarities(sides, options.similarity, options.paired)
        for similarity in SIMILARITIES[name].forms(options)
    ]
    reporter = reporting(options.progress)
    rows = [
        *similarity_rows(sides, forms, options.paired, reporter),
        *difference_rows(sides, curves, keys),
    ]
    comparison = Comparison(
        runs=tuple(map(_member, sides)),
        data=" and ".join(dict.fromkeys(str(run.info["data"]["name"]) for run in runs)),
        n=len(sides[0].rows),
        left_out=sides[0].left_out,
        series=is_series(runs),
        notes=(*notes_on(sides), *not_compared),
        frame=pd.DataFrame(rows, columns=list(COLUMNS)),
    )
    if options.out is not None:
        comparison.save(options.out)
    return comparison


def _member(side: Side) -> Member:
    run = side.run
    model = run.info["model"]
    return Member(
        name=side.name,
        path=str(run.path),
        model=str(model["name"]),
        revision=model.get("revision"),
        depth=side.depth,
        width=side.states.width,
        pooling=side.pooling,
        final=run.final,
    )


def chosen_similarities(
    sides: Sequence[Side], names: Sequence[str] | None, paired: bool
) -> tuple[str, ...]:
    """Return the similarities to compute: those that are named, else CKA, and cosine where all widths are equal.

    Of two towers cosine comes first, and the modality gap is added.

    Raises `LayerscopeError` for an unknown name, and for cosine where widths differ.
    """
    widths = {side.states.width for side in sides}
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
            listed = " and ".join(map(str, sorted(widths)))
            raise LayerscopeError(
                f"{name} needs states of one width, and these are {listed} wide: take cka"
            )
    return tuple(dict.fromkeys(names))


def similarity_rows(
    sides: Sequence[Side],
    forms: Sequence[tuple[str, Similarity]],
    paired: bool,
    reporter: Reporter,
) -> Iterator[Row]:
    """Yield the rows of every run against the first; where the runs are `paired` towers, of each against itself too.

    `forms` are similarities with their names.
    """
    pairs = [("similarity", 0, other) for other in range(1, len(sides))]
    if paired:
        pairs += [("within", side, side) for side in range(len(sides))]
    with reporter.bar("similarity", len(forms) * len(pairs)) as advance:
        for name, similarity in forms:
            thinned = [replace(side, rows=similarity.rows(side.rows)) for side in sides]
            for kind, a, b in pairs:
                yield from pair_rows(kind, name, similarity, thinned[a], thinned[b])
                # its R² says from which layer another one can be read
                if name == LINEAR_MAP.name and not paired:
                    yield from step_rows(thinned[a], thinned[b])
                advance(1)


def pair_rows(
    kind: str, name: str, similarity: Similarity, a: Side, b: Side
) -> Iterator[Row]:
    """Yield the similarity of every layer of one run with every layer of the other."""
    needed = similarity.needed(max(a.states.width, b.states.width))
    if len(a.rows) < needed:
        raise LayerscopeError(
            f"{name} is not defined for {len(a.rows):,} samples: at this width it needs {needed:,}; profile more, or "
            "choose another with `similarity`"
        )
    other_states = None
    if a is not b:
        other_states = b.states
    values = similarity.measured(a.states, other_states)
    for i, column in enumerate(a.columns):
        for j, other in enumerate(b.columns):
            value, stderr, n = (float(part[i, j]) for part in values)
            yield {
                "kind": kind,
                "run": a.name,
                "run_b": b.name,
                "metric": name,
                "variant": similarity.variant,
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

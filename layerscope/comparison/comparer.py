"""The verb `compare`: similarity of layers across runs, differences of metrics by depth, checkpoints by layer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from layerscope.comparison.comparison import STORE, Comparison, Member
from layerscope.comparison.differences import chosen_metrics, difference_rows
from layerscope.comparison.matching import Sides, opened, sides_of
from layerscope.comparison.measured import Key, Measured, PerSample, kept_pooling, measured
from layerscope.comparison.series import steps
from layerscope.comparison.similarities import chosen_similarities, layer_rows, pair_rows
from layerscope.core.errors import LayerscopeError
from layerscope.core.progress import Console, Silent, Teller
from layerscope.runs.names import run_names
from layerscope.runs.run import Run

Row = dict[str, Any]


def compare(
    runs: Sequence[Run | str | Path],
    *,
    similarity: str | Iterable[str] | None = None,
    metrics: str | Iterable[str] | None = None,
    pooling: str | None = None,
    site: str | None = None,
    out: str | Path | None = None,
    progress: bool = True,
) -> Comparison:
    """Return how alike the layers of runs are, and how their metrics differ by depth; no model is run.

    Every run is compared with the first, on the samples that are whole in all of them. Where depths differ, a layer of
    the shallower run stands beside the one of the other that is nearest in percent of depth. Three or more runs of one
    architecture are a series: each layer is compared with its counterpart in the last checkpoint and in the one
    before; they are put in order by the step number that every revision, model or run folder names ("step1000",
    "checkpoint-500"), and else stay as they are given.

    Args:
        runs: two run folders or `Run`s, or more, of the same samples.
        similarity: names of similarities of layers, with commas; None is CKA, and cosine where all widths are equal.
        metrics: names of metrics to compare, with commas; None is all that every run has.
        pooling: which vector of a sample; None is the first that all have, else the first of each.
        site: where in a layer: "raw" or "normed"; None is raw, and the last layer after its norm besides.
        out: a folder to keep the comparison in; None keeps nothing.
        progress: show bars on standard error.

    Raises:
        LayerscopeError: for samples that do not match, InfoNCE or DiME of blocks of other sizes, and every other wrong
            input.

    Example:
        >>> comparison = layerscope.compare(["runs/minilm", "runs/tiny"], similarity="cka", progress=False)
        >>> comparison.similarity().shape  # layers 0 to 6 of one, 0 to 3 of the other
        (7, 4)

    """
    place = None if out is None else STORE.folder(out)
    ready = opened(runs)
    order = steps(ready)
    sides = sides_of(ready, pooling, site)
    notes = list(sides.notes)
    if sides.is_series and order is not None:
        ranked = sorted(range(len(ready)), key=order.__getitem__)
        if ranked != list(range(len(ready))):
            ready, order = [ready[i] for i in ranked], [order[i] for i in ranked]
            sides = sides_of(ready, pooling, site)
            notes = [*sides.notes, "the checkpoints are in the order of their steps"]
    names = run_names(ready)
    kept = kept_pooling(sides) if pooling is None else None
    known = [measured(side, kept) for side in sides]
    keys, left = chosen_metrics(sides, known, _names(metrics, "metrics"))
    chosen = chosen_similarities(sides, _names(similarity, "similarity"))
    teller: Teller = Console() if progress else Silent()
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


def _names(given: str | Iterable[str] | None, option: str) -> list[str] | None:
    if given is None:
        return None
    names = [name.strip() for name in (given.split(",") if isinstance(given, str) else given) if name.strip()]
    if not names:
        raise LayerscopeError(f"--{option} names none: give names with commas, or leave it out")
    return names

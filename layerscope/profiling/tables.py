"""From the run folder to the tables of metrics, without the model.

There is a table for each kind of metric: for what it is computed from, such as pooled states. A
table is made of items, which the processes of a team share: of the pooled states of a model of 6
layers these are its layers 0 to 6, for each pooling. An item gives rows of the table, one for each
number, and may give a part of a table of samples, with a value for each of them:

    pooled  (mean, layer 3)  →  effective_rank 9.5, anisotropy 0.21, …
    labels  (mean, layer 3)  →  linear_probe 0.81, …, and which samples the probe gets right

A table is written as soon as all its items are there, so that a run that is killed goes on with
the next.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain, islice
from typing import Any, NamedTuple

import pandas as pd

from layerscope.core import Reporter, Team
from layerscope.profiling.labels import label_items, label_rows
from layerscope.profiling.one_layer import (
    layer_items,
    lens_items,
    lens_rows,
    pooled_rows,
    token_rows,
    value_items,
)
from layerscope.profiling.options import PassOptions
from layerscope.profiling.source import Part, Row, Source
from layerscope.profiling.two_layers import (
    pair_items,
    pair_rows,
    path_items,
    path_rows,
)
from layerscope.profiling.view_blocks import view_rows
from layerscope.runs import COLUMNS, Run
from layerscope.runs.registry import Needs


class Step(NamedTuple):
    """How a table is made: its items, and what each gives."""

    items: Callable[[Source], Sequence[Any]]
    rows: Callable[[Source, Any], Iterator[Part]]


STEPS: dict[Needs, Step] = {
    "labels": Step(label_items, label_rows),
    "tokens": Step(partial(value_items, "tokens"), token_rows),
    "pooled": Step(layer_items, pooled_rows),
    "views": Step(layer_items, view_rows),
    "path": Step(path_items, path_rows),
    "pairs": Step(pair_items, pair_rows),
    "lens": Step(lens_items, lens_rows),
    "forward": Step(partial(value_items, "forward"), token_rows),
}
"""Where processes share the items, small ones at the end fill the time after the long ones."""


def write_tables(
    run: Run, options: PassOptions, reporter: Reporter, team: Team
) -> None:
    """Compute the tables that the options ask for and the run folder lacks, and write each when it is complete."""
    source = Source(run, options)
    wanted = filter(options.wants, STEPS)
    missing = [kind for kind in wanted if not run.folder.has_table(kind)]
    # the first process writes while others still look: its list holds for all
    kinds = team.meet(missing)[0]

    items = {kind: STEPS[kind].items(source) for kind in kinds}
    jobs = [(kind, item) for kind in kinds for item in items[kind]]
    results = team.each(partial(_parts, source), jobs)
    with reporter.bar("metrics", len(kinds)) as advance:
        for kind in kinds:
            of_kind = islice(results, len(items[kind]))
            parts = [*chain.from_iterable(of_kind)]
            if team.leads:
                _write(run, kind, parts)
            advance(1)


def _parts(source: Source, job: tuple[Needs, Any]) -> list[Part]:
    """Return what an item of a table gives."""
    kind, item = job
    return [*STEPS[kind].rows(source, item)]


def _write(run: Run, kind: Needs, parts: Sequence[Part]) -> None:
    """Write the table of a kind, after the tables of samples that came with it."""
    rows = []
    tables_of_samples = defaultdict(list)
    for part in parts:
        if isinstance(part, dict):
            rows.append(part)
        else:
            name, frame = part
            tables_of_samples[name].append(frame)
    for name, frames in tables_of_samples.items():
        run.folder.write_table(name, frames)
    run.folder.write_table(kind, long_frame(run, rows))


def long_frame(run: Run, rows: Sequence[Row]) -> pd.DataFrame:
    """Return rows as a table of a run has them, with the part of the model that was measured."""
    frame = pd.DataFrame(rows, columns=[*COLUMNS]).astype(COLUMNS)
    return frame.assign(part=run.info["model"]["part"])

"""From the run folder to the table: every metric by layer, without the model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from operator import itemgetter

import pandas as pd

from layerscope.core.processes import Team
from layerscope.core.progress import Reporter
from layerscope.profiling.options import Options
from layerscope.profiling.tables.by_layer import lens_rows, pooled_rows, token_rows
from layerscope.profiling.tables.labels import label_rows
from layerscope.profiling.tables.pairs import pair_rows
from layerscope.profiling.tables.source import Row, Source
from layerscope.profiling.tables.views import view_rows
from layerscope.runs import COLUMNS, Run
from layerscope.runs.registry import Needs

STEPS: dict[Needs, Callable[[Source], Iterator[Row]]] = {
    "tokens": token_rows,
    "pooled": pooled_rows,
    "views": view_rows,
    "pairs": pair_rows,
    "lens": lens_rows,
    "labels": label_rows,
}


def write_tables(run: Run, options: Options, reporter: Reporter, team: Team) -> None:
    """Compute every metric asked for that is not yet in the run folder, and keep each kind as soon as it is known."""
    source = Source(run, options, team)
    todo: list[Needs] = team.meet([kind for kind in STEPS if options.wants(kind) and not run.folder.has_table(kind)])[0]
    with reporter.bar("metrics", len(todo)) as advance:
        for kind in todo:
            rows = _rows(kind, source)
            if team.leads:
                frame = pd.DataFrame(rows, columns=list(COLUMNS)).astype(COLUMNS)
                frame["part"] = run.info["model"]["part"]
                run.folder.write_table(kind, frame)
            advance(1)


def _rows(kind: Needs, source: Source) -> list[Row]:
    """Return the rows of a kind, every process making its blocks, in the order in which one process makes them."""
    source.block = 0
    own = [(source.block, row) for row in STEPS[kind](source) if source.is_ours]
    return [row for _, row in sorted(chain(*source.team.meet(own)), key=itemgetter(0))]

"""Runs side by side: the same samples, in one order, or an error; nothing is compared that does not match.

A run is one of several *sides*. Runs match where their data have one fingerprint; what is compared
are the samples that are whole in all of them, in the order of the first. Where sample 2 gave NaN in
one run and was empty in none, of samples 0 to 4 these are the rows of each run's plan that belong
to 0, 1, 3 and 4. Runs of two towers over pairs have different samples: there sample i of one is
taken to belong to sample i of the other.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from layerscope.core import LayerscopeError, choices, count, jsonable
from layerscope.runs.details import run_names
from layerscope.runs.opening import open_run
from layerscope.runs.run import Run
from layerscope.runs.states import OWN, PROJECTED, Column, StoredStates

OPTIONS = {
    "max_length": "the maximum length",
    "prompt": "the prompt",
    "chunk": "the windows",
    "views": "the number of views",
    "alpha": "the order of the entropies",
    "exclude_sinks": "the treatment of sinks",
    "seed": "the seed",
}
"""Options of a run that move a metric without the model."""


@dataclass(frozen=True)
class Side:
    """One of the runs that are compared: its name, which pooling and layers of it, its rows of the common samples.

    `columns` are the layers of one site, and behind them the model's last layer after its norm,
    where it has one.
    """

    run: Run
    name: str
    pooling: str
    columns: tuple[Column, ...]
    rows: NDArray[np.int64]

    @property
    def depth(self) -> int:
        """L, the number of block executions."""
        return self.run.depth

    @property
    def total(self) -> int:
        """The number of samples, common or not."""
        return int(self.run.info["data"]["samples"])

    @property
    def left_out(self) -> int:
        """The number of samples that some run lacks."""
        return self.total - len(self.rows)

    @cached_property
    def states(self) -> StoredStates:
        """The states [N, layers, D] of the common samples, read in blocks."""
        return self.run.states(self.pooling, self.columns, self.rows)


def opened(entries: Sequence[Run | str | Path], paired: bool) -> list[Run]:
    """Return the runs to compare, all of the same samples, or two of `paired` ones.

    Anything else is an error.
    """
    if isinstance(entries, (Run, str, Path)) or len(entries) < 2:
        raise LayerscopeError("compare needs two runs or more: give the folder of each")
    runs = []
    paths = set()
    for entry in entries:
        run = entry if isinstance(entry, Run) else open_run(entry)
        run.need_states()
        path = run.path.resolve()
        if path in paths:
            raise LayerscopeError(
                f"run {str(run.path)!r} is given twice: compare needs runs that differ"
            )
        paths.add(path)
        runs.append(run)
    if paired:
        _refuse_unpaired(runs)
        return runs
    for run in runs[1:]:
        _refuse_other_samples(runs[0], run)
    return runs


def is_series(runs: Sequence[Run]) -> bool:
    """Return whether these are three or more checkpoints of one architecture.

    Then layer k of one is layer k of the others, and may be followed through them.
    """
    shapes = set()
    for run in runs:
        model = run.info["model"]
        shapes.add((model["class"], run.depth, model["width"], run.final))
    return len(runs) >= 3 and len(shapes) == 1


def sides_of(
    runs: Sequence[Run], pooling: str | None, site: str | None
) -> Iterator[Side]:
    """Yield runs with their pooling, layers and rows of the samples that are whole in all of them.

    Without `pooling` it is the first that all have, else the first of each.
    """
    complete = [_complete_rows(run) for run in runs]
    # the first run's order: its blocks lie in neighbouring shards, and so do those of a like model
    order = complete[0].index
    shared = pd.Index(runs[0].info["pooling"])
    for run, rows_by_sample in zip(runs, complete, strict=True):
        order = order.intersection(rows_by_sample.index, sort=False)
        shared = shared.intersection(run.info["pooling"], sort=False)
    if order.empty:
        raise LayerscopeError(
            "no sample is whole in all of these runs: check the notes in their reports"
        )
    for run, name, rows_by_sample in zip(runs, run_names(runs), complete, strict=True):
        chosen = pooling or [*shared, *run.info["pooling"]][0]
        poolings = [*run.info["pooling"], *run.info["pair_pooling"]]
        if chosen not in poolings:
            raise LayerscopeError(
                f"pooling {chosen!r} is not in run {str(run.path)!r}{choices(chosen, poolings, 'it has')}; "
                f"profile it with `pooling='{chosen}'`"
            )
        if site == PROJECTED:
            chosen = OWN
        rows = rows_by_sample[order].to_numpy()
        yield Side(run, name, chosen, _columns(run, site), rows)


def _refuse_unpaired(runs: Sequence[Run]) -> None:
    """Raise unless sample i of one run belongs to sample i of the other, as far as their numbers and names say."""
    counts = [run.info["data"]["samples"] for run in runs]
    if len(runs) > 2 or counts[0] != counts[1]:
        numbers = " and ".join(f"{number:,}" for number in counts)
        raise LayerscopeError(
            f"`paired=True` compares two runs with the same number of samples, and these have {numbers}: give the runs "
            "of both towers over the same pairs"
        )
    names = [run.folder.plan.set_index("sample")["name"].to_dict() for run in runs]
    drawn = {run.info["options"]["samples"] for run in runs}
    if names[0] != names[1] and counts[0] in drawn:
        raise LayerscopeError(
            f"the {counts[0]:,} samples of these runs may have been drawn separately from more: profile both with "
            "`samples='all'`"
        )


def _refuse_other_samples(first: Run, other: Run) -> None:
    """Raise where two runs are not of the same samples."""
    a = first.info["data"]
    b = other.info["data"]
    if (a["samples"], a["fingerprint"]) != (b["samples"], b["fingerprint"]):
        raise LayerscopeError(
            f"the samples of {str(first.path)!r} and {str(other.path)!r} do not match ({a['samples']:,} of "
            f"{a['name']}, {b['samples']:,} of {b['name']}): profile both with the same data, samples, seed and labels"
        )


def _complete_rows(run: Run) -> pd.Series:
    """Return the row of the plan of every sample that is finite at every layer, by its number, in plan order."""
    plan = run.folder.plan
    samples = plan.loc[(plan["view"] == 0) & run.folder.finite(), "sample"]
    return pd.Series(samples.index, index=samples)


def _columns(run: Run, site: str | None) -> tuple[Column, ...]:
    """Return the layers of a run at a site, by default its own, and behind them the last one after its norm."""
    if site is None:
        return run.columns
    projected = {column.site for column in run.projected}
    sites = [*run.info["model"]["sites"], *projected]
    if site not in sites:
        raise LayerscopeError(
            f"site {site!r} is not in run {str(run.path)!r}{choices(site, sites, 'it has')}"
        )
    layers = tuple(Column(site, layer) for layer in run.layers)
    if site in (run.final, PROJECTED):
        return layers
    return (*layers, Column(run.final, run.depth))


def notes_on(sides: Sequence[Side]) -> Iterator[str]:
    """Yield a line on samples that are left out, and one on options in which the runs differ."""
    left_out = sides[0].left_out
    if left_out:
        samples = count(left_out, "sample")
        yield f"{samples} broken or empty in some run: left out of similarities and paired differences"
    options = [jsonable(side.run.info["options"]) for side in sides]
    names = []
    for key, text in OPTIONS.items():
        values = {repr(run_options.get(key)) for run_options in options}
        if len(values) > 1:
            names.append(text)
    if names:
        yield f"the runs differ in {', '.join(names)}: these change a metric whatever the model"

"""Runs side by side: the same samples, in one order, or an error; nothing is compared that does not match."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePath

import numpy as np
import numpy.typing as npt

from layerscope.core.errors import LayerscopeError, choices, count
from layerscope.core.saved import jsonable
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
Rows = npt.NDArray[np.int64]
STEP = re.compile(r"(?:step|checkpoint|ckpt|iter|epoch)[-_=]?(\d+)", re.IGNORECASE)


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
    rows: Rows

    @property
    def depth(self) -> int:
        """L, the number of block executions."""
        return self.run.depth

    @property
    def width(self) -> int:
        """D, the size of a state."""
        return self.states.width

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


def opened(entries: Sequence[Run | str | Path], paired: bool = False) -> list[Run]:
    """Return the runs to compare, all of the same samples, or two of `paired` ones; anything else is an error."""
    if isinstance(entries, (Run, str, Path)) or len(entries) < 2:
        raise LayerscopeError("compare needs two runs or more: give the folder of each")
    runs = [entry if isinstance(entry, Run) else open_run(entry) for entry in entries]
    paths = [run.path.resolve() for run in runs]
    for run, path in zip(runs, paths, strict=True):
        run.need_states()
        if paths.count(path) > 1:
            raise LayerscopeError(
                f"run {str(run.path)!r} is given twice: compare needs runs that differ"
            )
    if paired:
        _refuse_unpaired(runs)
    for run in () if paired else runs[1:]:
        _refuse_other_samples(runs[0], run)
    return runs


def is_series(runs: Sequence[Run]) -> bool:
    """Return whether these are three or more checkpoints of one architecture."""
    shapes = {
        (run.info["model"]["class"], run.depth, run.info["model"]["width"], run.final)
        for run in runs
    }
    return len(runs) >= 3 and len(shapes) == 1


def steps(runs: Sequence[Run]) -> list[int] | None:
    """Return the step of each checkpoint where all revisions, models or run folders name different ones; else None."""
    models = [run.info["model"] for run in runs]
    revisions = [model.get("revision") for model in models]
    sources = [PurePath(model.get("source") or "").name for model in models]
    for texts in (revisions, sources, [run.path.name for run in runs]):
        matches = [STEP.findall(text or "") for text in texts]
        numbers = {int(match[-1]): None for match in matches if match}
        if len(numbers) == len(runs):
            return list(numbers)
    return None


def sides_of(
    runs: Sequence[Run], pooling: str | None = None, site: str | None = None
) -> tuple[list[Side], list[str]]:
    """Return runs with their pooling, layers and rows of the samples that are whole in all of them, and notes.

    Without `pooling` it is the first that all have, else the first of each.
    """
    whole = [_whole(run) for run in runs]
    common = set.intersection(*(set(samples) for samples in whole))
    if not common:
        raise LayerscopeError(
            "no sample is whole in all of these runs: check the notes in their reports"
        )
    # the first run's order: its blocks lie in neighbouring shards, and so do those of a like model
    order = [sample for sample in whole[0] if sample in common]
    first, *others = (run.info["pooling"] for run in runs)
    shared = [name for name in first if all(name in other for other in others)]
    sides = []
    for run, name, rows_by_sample in zip(runs, run_names(runs), whole, strict=True):
        chosen = pooling or (shared or run.info["pooling"])[0]
        there = [*run.info["pooling"], *run.info["pair_pooling"]]
        if chosen not in there:
            raise LayerscopeError(
                f"pooling {chosen!r} is not in run {str(run.path)!r}{choices(chosen, there, 'it has')}; "
                f"profile it with `pooling='{chosen}'`"
            )
        if site == PROJECTED:
            chosen = OWN
        rows = np.array([rows_by_sample[sample] for sample in order])
        sides.append(Side(run, name, chosen, _columns(run, site), rows))
    return sides, list(_notes(runs, sides[0].left_out))


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
    if names[0] != names[1] and any(
        run.info["options"]["samples"] == counts[0] for run in runs
    ):
        raise LayerscopeError(
            f"the {counts[0]:,} samples of these runs may have been drawn separately from more: profile both with "
            "`samples='all'`"
        )


def _refuse_other_samples(first: Run, other: Run) -> None:
    """Raise where two runs are not of the same samples."""
    a, b = first.info["data"], other.info["data"]
    if (a["samples"], a["fingerprint"]) != (b["samples"], b["fingerprint"]):
        raise LayerscopeError(
            f"the samples of {str(first.path)!r} and {str(other.path)!r} do not match ({a['samples']:,} of "
            f"{a['name']}, {b['samples']:,} of {b['name']}): profile both with the same data, samples, seed and labels"
        )


def _whole(run: Run) -> dict[int, int]:
    """Return the row of the plan of every sample that is finite at every layer, by its number, in plan order."""
    plan = run.folder.plan
    whole = plan.loc[(plan["view"] == 0) & run.folder.finite(), "sample"]
    return dict(zip(whole.tolist(), whole.index.tolist(), strict=True))


def _columns(run: Run, site: str | None) -> tuple[Column, ...]:
    if site is None:
        return run.columns
    sites = [
        *run.info["model"]["sites"],
        *dict.fromkeys(column.site for column in run.projected),
    ]
    if site not in sites:
        raise LayerscopeError(
            f"site {site!r} is not in run {str(run.path)!r}{choices(site, sites, 'it has')}"
        )
    layers = tuple(Column(site, layer) for layer in run.layers)
    return (
        layers
        if site in (run.final, PROJECTED)
        else (*layers, Column(run.final, run.depth))
    )


def _notes(runs: Sequence[Run], left_out: int) -> Iterator[str]:
    if left_out:
        samples = count(left_out, "sample")
        yield f"{samples} broken or empty in some run: left out of similarities and paired differences"
    options = [run.info["options"] for run in runs]
    names = [
        text
        for key, text in OPTIONS.items()
        if len({repr(jsonable(of_run.get(key))) for of_run in options}) > 1
    ]
    if names:
        yield f"the runs differ in {', '.join(names)}: these change a metric whatever the model"

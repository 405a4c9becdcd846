"""Start or resume a run folder, and say what the run takes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from layerscope.core.progress import Reporter
from layerscope.core.words import count, listed
from layerscope.profiling.identity import refuse_another
from layerscope.profiling.plan import Job, make_plan
from layerscope.runs import Run, RunFolder
from layerscope.runs.folder import need_room

Size = Callable[[pd.DataFrame, Job], int]


def open_or_start(
    path: Path, manifest: dict[str, Any], job: Job, reporter: Reporter, size_of: Size | None = None
) -> RunFolder:
    """Resume the run of that folder, or plan a new one and say what it takes: bytes by `size_of`, or pooled ones.

    Raises `LayerscopeError` for a folder that holds another run, and for states that do not fit on its disk.
    """
    for note in (*job.corpus.notes, *job.model.notes):
        reporter.say(note)
    if RunFolder.exists(path):
        return _resumed(path, manifest, reporter)
    plan = make_plan(job)
    size = (size_of or _bytes)(plan, job)
    need_room(path, size)
    originals = int((plan["view"] == 0).sum())
    views = f" + {len(plan) - originals:,} of views" if len(plan) > originals else ""
    reporter.say(
        f"{job.model.loaded.name}: {job.model.stack.depth} layers of {job.model.stack.width} · {job.corpus.name}: "
        f"{count(originals, 'forward')} of samples{views} · {size / 1e6:,.0f} MB of states in {path}"
    )
    left_out = _left_out(plan, job)
    for note in left_out:
        reporter.say(note)
    folder = RunFolder.create(path, {**manifest, "notes": [*job.corpus.notes, *job.model.notes, *left_out]}, plan)
    folder.log("started", rows=len(plan), shards=len(folder.shards))
    return folder


def _resumed(path: Path, manifest: dict[str, Any], reporter: Reporter) -> RunFolder:
    folder = RunFolder(path)
    refuse_another(path, folder.manifest, manifest)
    for name in folder.drop_damaged():
        reporter.say(f"{name} of {str(path)!r} is not what was written: it is computed again")
    finished = sum(folder.is_finished(shard) for shard in folder.shards)
    reporter.say(f"going on with {str(path)!r}: {finished} of {len(folder.shards)} shards are there")
    folder.log("resumed", finished=finished)
    return folder


def _left_out(plan: pd.DataFrame, job: Job) -> list[str]:
    """Return a line on each kind of samples, or parts of them, that are left out."""
    lines, total = [], len(job.corpus)
    if plan.attrs["cut"]:
        what, unit = ("texts", "token") if job.model.encoder.modality == "text" else ("sounds", "second")
        lines.append(f"{plan.attrs['cut']:,} of {total:,} {what} are cut at {count(job.model.max_length or 0, unit)}")
    if plan.attrs["empty"]:
        kept = set(plan["sample"])
        names = [name for i, name in enumerate(job.corpus.names) if i not in kept]
        what = "sounds are too short for the model" if job.corpus.modality == "audio" else "samples have no token"
        lines.append(f"{len(names):,} of {total:,} {what}: they are left out and counted ({listed(names)})")
    if "label" in plan and "copy" in plan:
        n = plan.loc[plan["copy"], "sample"].nunique()
        lines.append(f"{n:,} of {total:,} samples are exact copies of others: probes leave them out")
    classifier = job.model.lens is not None and job.model.lens.kind == "pooled"
    if classifier and "label" in plan and "target" not in plan and job.options.wants("lens"):
        example = plan["label"].iloc[0]
        lines.append(f"the labels are not the classes of the model's head (such as {example}): no layer accuracy")
    return lines


def _bytes(plan: pd.DataFrame, job: Job) -> int:
    """Return the size of the pooled states; similarities may keep a vector more of each original."""
    model, vectors = job.model, job.vectors
    kept = len(plan) * len(vectors.poolings) + int((plan["view"] == 0).sum()) * len(vectors.pairs)
    states = kept * (model.stack.depth + 1) * len(model.sites)
    states += len(plan) * len(vectors.poolings) * len(model.sublayers.taps)
    numbers = states * model.stack.width
    if model.projection is not None:
        projected = len(plan) * (model.stack.depth + 1)
        states, numbers = states + projected, numbers + projected * model.projection.width
    # in half precision each vector has its norm beside it
    return 2 * numbers + 4 * states if job.options.store_dtype == "float16" else 4 * numbers


def report_broken(run: Run, reporter: Reporter) -> None:
    """Name the samples that are left out for a NaN or an infinity, with their first layer."""
    plan, layers = run.folder.plan, run.folder.broken()
    broken = np.flatnonzero(layers >= 0)
    if len(broken):
        reporter.say(
            f"{len(broken):,} of {len(plan):,} forwards of {run.info['model']['name']} hold NaN or infinity (first: "
            f"layer {layers[broken[0]]}, sample {plan['name'].iloc[broken[0]]}): they are left out and counted; "
            "`dtype='float32'` may help"
        )

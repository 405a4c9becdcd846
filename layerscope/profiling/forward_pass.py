"""A run folder started or resumed, and the pass: every batch of the plan once, whatever interrupts it.

The plan has batches, and shards of a few batches each. A batch is one forward, during which a
`Measure` sees the states of every layer. A shard is one file: what is measured of its batches,
joined along the samples. A killed pass goes on with the shards that have no file; processes of a
team take whichever shard is free.
"""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import filterfalse
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from layerscope.core import LayerscopeError, Reporter, Team, ahead, count, listed
from layerscope.models.capture import evaluating
from layerscope.models.forward import Inputs, in_halves
from layerscope.profiling.identity import refuse_another
from layerscope.profiling.measure import BatchMeasure, Measures
from layerscope.profiling.plan import Job, Tensors, make_plan, view_of
from layerscope.runs import Run, RunFolder
from layerscope.runs.folder import need_room

HOPELESS = 64
"""A pass stops where a shard has this many samples or more and all give NaN or infinity."""

Size = Callable[[pd.DataFrame, Job], int]


def _bytes(plan: pd.DataFrame, job: Job) -> int:
    """Return the size of the pooled states; similarities may keep one more vector of each original.

    Of 1,000 samples at 13 layers of width 768, one vector each in float32, that is 40 MB.
    """
    model = job.model
    rows = len(plan)
    originals = int((plan["view"] == 0).sum())
    vectors = rows * len(job.vectors.poolings) + originals * len(job.vectors.pairs)
    layers = len(model.layers) * len(model.sites) + len(model.sublayers.taps)
    numbers = vectors * layers * model.width
    if model.projection is not None:
        numbers += rows * len(model.layers) * model.projection.width
    return numbers * (2 if job.options.store_dtype == "float16" else 4)


def shared_run(
    path: Path,
    manifest: dict[str, Any],
    job: Job,
    reporter: Reporter,
    team: Team,
    measure: Measures = BatchMeasure,
    size_of: Size = _bytes,
) -> Run:
    """Return the run of a folder, started or resumed and its pass whole, by all processes of a team.

    `size_of` says what the states of a plan take, in bytes. Raises `LayerscopeError` for a folder
    that holds another run, and for states that do not fit on its disk.
    """

    def start() -> None:
        for note in (*job.corpus.notes, *job.model.notes):
            reporter.say(note)
        if RunFolder.exists(path):
            _resume(path, manifest, reporter)
        else:
            _start(path, manifest, job, reporter, size_of)

    team.lead(start)
    run = Run(path)
    refuse_another(path, run.info, manifest)
    _run_pass(job, run.folder, reporter, measure, team)
    _report_broken(run, reporter)
    return run


def _resume(path: Path, manifest: dict[str, Any], reporter: Reporter) -> None:
    """Say what a run that was stopped has, damaged shards left out."""
    folder = RunFolder(path)
    refuse_another(path, folder.manifest, manifest)
    for name in folder.drop_damaged():
        reporter.say(
            f"{name} of {str(path)!r} has changed since it was written: it is computed again"
        )
    finished = sum(map(folder.is_finished, folder.shards))
    reporter.say(
        f"resuming {str(path)!r}: {finished} of {len(folder.shards)} shards are done"
    )
    folder.log("resumed", finished=finished)


def _start(
    path: Path, manifest: dict[str, Any], job: Job, reporter: Reporter, size_of: Size
) -> None:
    """Plan a new run, say what it takes, and make its folder."""
    plan = make_plan(job)
    size = size_of(plan, job)
    need_room(path, size)
    originals = int((plan["view"] == 0).sum())
    samples = count(originals, "sample")
    if len(plan) > originals:
        samples += f" and {count(len(plan) - originals, 'view')} of them"
    reporter.say(
        f"{job.model.name}: {job.model.size} · {job.corpus.name}: {samples} · "
        f"{size / 1e6:,.0f} MB of states in {path}"
    )
    left_out = _left_out(plan, job)
    for note in left_out:
        reporter.say(note)
    notes = [*job.corpus.notes, *job.model.notes, *left_out]
    folder = RunFolder.create(path, {**manifest, "notes": notes}, plan)
    folder.log("started", rows=len(plan), shards=len(folder.shards))


def _left_out(plan: pd.DataFrame, job: Job) -> list[str]:
    """Return a line on each kind of samples, or parts of them, that are left out.

    Texts are cut, samples are empty, copies are kept from probes, labels are not the model's classes.
    """
    lines = []
    total = len(job.corpus)
    if plan.attrs["cut"]:
        what = "sounds"
        unit = "second"
        if job.model.encoder.modality == "text":
            what = "texts"
            unit = "token"
        most = count(job.model.max_length or 0, unit)
        lines.append(f"{plan.attrs['cut']:,} of {total:,} {what} are cut at {most}")
    if plan.attrs["empty"]:
        lacking = np.setdiff1d(np.arange(total), plan["sample"]).tolist()
        names = [job.corpus.names[sample] for sample in lacking]
        what = "samples have no token"
        if job.corpus.modality == "audio":
            what = "sounds are too short for the model"
        lines.append(
            f"{len(names):,} of {total:,} {what}: they are left out and counted ({listed(names)})"
        )
    if "label" not in plan:
        return lines
    if "copy" in plan:
        copies = plan.loc[plan["copy"], "sample"].nunique()
        lines.append(
            f"{copies:,} of {total:,} samples are exact copies of others: probes leave them out"
        )
    lens = job.model.lens
    is_read = lens is not None and lens.kind == "pooled" and job.options.wants("lens")
    if is_read and "target" not in plan:
        example = plan["label"].iloc[0]
        lines.append(
            f"the labels are not the classes of the model's head (such as {example}): no layer accuracy"
        )
    return lines


def _report_broken(run: Run, reporter: Reporter) -> None:
    """Name the samples that are left out for a NaN or an infinity, with their first layer.

    Raises `LayerscopeError` for all of them.
    """
    plan = run.folder.plan
    layers = run.folder.broken()
    broken = np.flatnonzero(layers >= 0)
    if not len(broken):
        return
    model = run.info["model"]["name"]
    originals = run.folder.originals
    refuse_hopeless(model, originals["name"], layers[originals.index])
    first = f"layer {layers[broken[0]]}, sample {plan['name'].iloc[broken[0]]}"
    mend = "; `dtype='float32'` may help" if run.has_model else ""
    reporter.say(
        f"{len(broken):,} of {len(plan):,} forwards of {model} hold NaN or infinity (first: {first}): "
        f"they are left out and counted{mend}"
    )


def _run_pass(
    job: Job, folder: RunFolder, reporter: Reporter, measure: Measures, team: Team
) -> None:
    """Compute every shard that is not finished; a batch that does not fit into memory is computed in halves.

    The processes of a team share the shards, and an error of one ends all. A single sample that does
    not fit ends the pass.
    """
    unfinished = [*filterfalse(folder.is_finished, folder.shards)]
    # the list of the first process holds for all
    todo = team.meet(unfinished)[0]

    def halved(rows: pd.DataFrame) -> None:
        batch = int(rows["batch"].iloc[0])
        folder.log("halved", batch=batch, rows=len(rows))
        reporter.say(
            f"out of memory: batch {batch} of {len(rows)} samples is computed in halves"
        )

    def write(shard: int) -> int:
        parts = []
        plan = folder.rows(shard)
        for part in compute(job, plan, halved, measure):
            parts.append(part)
            advance(len(part["broken"]))
        folder.write_shard(shard, assembled(job, plan, parts))
        folder.log("shard", shard=shard, forwards=len(parts), rows=len(plan))
        return team.rank

    with (
        evaluating(job.model.module),
        reporter.bar("forward", len(folder.plan), "samples") as advance,
    ):
        missing = sum(len(folder.rows(shard)) for shard in todo)
        advance(len(folder.plan) - missing)
        for shard, rank in zip(todo, team.each(write, todo), strict=True):
            advance(0 if rank == team.rank else len(folder.rows(shard)))


def read(job: Job, rows: pd.DataFrame) -> Inputs:
    """Return the samples of a batch as the model takes them.

    Views are made here, each time anew.
    """
    pairs = rows[["sample", "view"]].to_numpy().tolist()
    samples = [view_of(job, sample, view) for sample, view in pairs]
    return job.model.encoder.batch(samples).pinned()


def compute(
    job: Job,
    plan: pd.DataFrame,
    halved: Callable[[pd.DataFrame], None],
    measure: Measures = BatchMeasure,
) -> Iterator[Tensors]:
    """Yield the measurements of each batch of a plan, while the next one is read.

    They come in one piece or, after a call of `halved`, in two where memory runs out.
    """

    def about(one: pd.DataFrame) -> str:
        return f"of {one['length'].iloc[0]} tokens ({one['name'].iloc[0]})"

    def forward(rows: pd.DataFrame, inputs: Inputs, part: pd.DataFrame) -> Tensors:
        if part is not rows:
            inputs = read(job, part)
        return _forward(job, part, measure, inputs)

    batches = (rows for _, rows in plan.groupby("batch"))
    for rows, inputs in ahead(partial(read, job), batches):
        run = partial(forward, rows, inputs)
        for _, tensors in in_halves(rows, run, halved, about):
            yield tensors


@torch.inference_mode()
def _forward(
    job: Job, rows: pd.DataFrame, measure: Measures, inputs: Inputs
) -> Tensors:
    inputs = inputs.to(job.model.device)
    measured = measure(job, inputs, rows)
    job.model.run(inputs, measured.visit)
    return measured.tensors()


def assembled(job: Job, plan: pd.DataFrame, parts: list[Tensors]) -> Tensors:
    """Return the batches of a plan as one; raise for many samples that all give NaN or infinity."""
    tensors = joined(parts)
    if len(plan) >= HOPELESS:
        refuse_hopeless(job.model.name, plan["name"], tensors["broken"])
    return tensors


def joined(parts: list[Tensors]) -> Tensors:
    """Join batches along the samples; the rows of tokens count on from batch to batch.

    >>> first = {"broken": torch.tensor([-1, -1]), "lens.row": torch.tensor([0, 1])}
    >>> joined([first, {"broken": torch.tensor([-1]), "lens.row": torch.tensor([0, 0])}])["lens.row"]
    tensor([0, 1, 2, 2])
    """
    out = {}
    sizes = [len(part["broken"]) for part in parts]
    starts = np.cumsum([0, *sizes]).tolist()
    for key, first in parts[0].items():
        pieces = [part[key] for part in parts]
        if key.endswith(".row"):
            pieces = [*map(torch.add, pieces, starts)]
        out[key] = torch.cat(pieces, 0 if first.ndim == 1 else 1)
    return out


def refuse_hopeless(model: str, names: pd.Series, broken: Any) -> None:
    """Raise where every sample gives NaN or infinity, from the layers `broken` [n] on (−1: finite)."""
    if (broken >= 0).all():
        raise LayerscopeError(
            f"layer {int(broken.min())} of {model} gives NaN or infinity for every sample (first: "
            f"{names.iloc[0]}): try `dtype='float32'`, or check the weights"
        )

"""One pass over data of any size: what is kept of them is sums, and a seeded sample of the samples.

Process r of n takes chunks r, r + n, … of the data, measures each as a small run of its own (plan,
batches, tensors), adds it to its sums and forgets it. A sample is kept by a priority that its place
and the seed decide, whoever reads it. After the pass the kept samples are profiled as an ordinary
run, whose tables get the rows from sums over all samples.
"""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from layerscope.core import LayerscopeError, Reporter, Team, count
from layerscope.inputs import Corpus
from layerscope.inputs.streams import Chunk, Stream
from layerscope.models.capture import evaluating
from layerscope.profiling.forward_pass import assembled, compute
from layerscope.profiling.identity import refuse_another
from layerscope.profiling.plan import Job, Tensors, make_plan
from layerscope.profiling.source import Source
from layerscope.profiling.stream_sums import StreamSums
from layerscope.profiling.tables import long_frame
from layerscope.runs import COLUMNS, Run, RunFolder
from layerscope.runs.folder import refuse_other_files
from layerscope.runs.registry import about

REST = 40
"""A checkpoint is written once this many times as long as the last one took has passed: 2.5 % of the time at most."""


def text_head(stream: Stream) -> Corpus:
    """Return the first samples of a stream of texts.

    Raises `LayerscopeError` for other data.
    """
    if stream.modality != "text":
        raise LayerscopeError(
            f"`keep_states` streams texts, and {stream.name} holds {stream.modality} samples: leave it out"
        )
    return stream.head


def sum_stream(
    job: Job,
    stream: Stream,
    path: Path,
    begun: dict[str, Any],
    reporter: Reporter,
    team: Team,
) -> StreamSums | None:
    """Run the pass, or what is left of it, and return what all processes have summed up.

    It is None for a finished run.
    """
    files = _files_of(path, begun, team.size)
    if files is None:
        return None
    sums = []
    for file in files:
        sums.append(StreamSums.load(file) if file.is_file() else StreamSums(begun))
        refuse_another(path, sums[-1].begun, begun)
    team.meet()  # before anyone writes, all have read
    if not all(each.ended for each in sums):
        reporter.say(_line(job, stream, path, sum(each.seen for each in sums)))
        _sum_chunks(job, stream, sums[team.rank], files[team.rank], team, reporter)
        team.meet()
        sums = [StreamSums.load(file) for file in files]
    whole, *rest = sums
    for other in rest:
        whole.join(other)
    return whole


def _files_of(path: Path, begun: dict[str, Any], size: int) -> list[Path] | None:
    """Return the file of each process's sums; None where the run is finished, and has none.

    Raises `LayerscopeError` where the folder is that of something else, or of another number of
    processes.
    """
    folder = path / "stream"
    there = sorted(folder.glob("*-of-*.npz"))
    if RunFolder.exists(path):
        info = RunFolder(path).manifest
        data = info.get("stream", info)["data"]
        refuse_another(path, {**info, "data": data}, begun)
        # the end of a run deletes the first one first
        if not any(file.name.startswith("0-") for file in there):
            return None
    else:
        refuse_other_files(path)
    files = [folder / f"{rank}-of-{size}.npz" for rank in range(size)]
    for file in there:
        if file not in files:
            number = file.stem.rpartition("-")[2]
            raise LayerscopeError(
                f"run folder {str(path)!r} was begun by {number} processes, and now there are {size}: "
                f"start {number}, or choose another folder with `out`"
            )
    return files


def _line(job: Job, stream: Stream, path: Path, seen: int) -> str:
    """Return the line on what begins: a pass over all data, or the rest of one."""
    if seen:
        return f"resuming {str(path)!r}: {count(seen, 'sample')} measured"
    length = "as many samples as there are"
    if stream.length is not None:
        length = count(stream.length, "sample")
    return (
        f"{job.model.name}: {job.model.size} · {stream.name}: {length}, chunk by chunk; sums and "
        f"{count(job.options.reservoir or 0, 'seeded sample')} are kept in {path}"
    )


def _sum_chunks(
    job: Job,
    stream: Stream,
    totals: StreamSums,
    file: Path,
    team: Team,
    reporter: Reporter,
) -> None:
    """Take every chunk of a process that is left; what is finished is kept whatever happens.

    A checkpoint is written from time to time, at the end, and before an error is passed on.
    """
    written = cost = 0.0
    chunks = stream.chunks(totals.next, lambda number: number % team.size == team.rank)
    with (
        evaluating(job.model.module),
        reporter.bar("forward", stream.length, "samples") as advance,
    ):
        advance(totals.seen)
        while not totals.ended:
            try:
                chunk = next((chunk for chunk in chunks if chunk.read), None)
                if chunk is not None:
                    measured = _measured(job, stream.name, chunk)
            except BaseException:
                totals.save(file)
                raise
            if chunk is None:
                totals.ended = True
            else:
                _add(job, chunk, measured, totals)
                advance(chunk.rows)
            start = time.monotonic()
            if totals.ended or start - written >= REST * cost:
                totals.save(file)
                written = time.monotonic()
                cost = written - start


def _measured(job: Job, name: str, chunk: Chunk) -> tuple[pd.DataFrame, Tensors] | None:
    """Return the plan of a chunk and what was measured of it.

    It is None where none of its samples has a token.
    """
    if not any(job.model.encoder.lengths(chunk.samples)):
        return None
    part = replace(job, corpus=Corpus(name, "text", chunk.samples, chunk.names))
    plan = make_plan(part)
    batches = [*compute(part, plan, lambda _: None)]
    return plan, assembled(part, plan, batches)


def _add(
    job: Job,
    chunk: Chunk,
    measured: tuple[pd.DataFrame, Tensors] | None,
    totals: StreamSums,
) -> None:
    """Add a chunk to the sums, and those of its samples that are kept."""
    totals.next = chunk.number + 1
    totals.seen += chunk.rows
    totals.empty += chunk.rows
    if measured is not None:
        plan, tensors = measured
        totals.empty -= len(plan)
        totals.cut += plan.attrs["cut"]
        totals.broken += int((tensors["broken"] >= 0).sum())
        totals.add(job, tensors)
    n = len(chunk.samples)
    draw = np.random.default_rng([job.options.seed, 5, chunk.number])
    priorities = draw.random(n).tolist()
    labels = chunk.labels or [None] * n
    facts = zip(priorities, chunk.samples, chunk.names, labels, strict=True)
    for place, (priority, *sample) in enumerate(facts):
        totals.kept.append((priority, chunk.number, place, *sample))
    totals.kept = sorted(totals.kept)[: job.options.reservoir]


def finish(run: Run, job: Job, totals: StreamSums) -> None:
    """Put the rows of all samples into the tables, and drop what is not to be kept."""
    source = Source(run, job.options)
    source.total = totals.seen
    rows = long_frame(run, [*totals.rows(source)])
    kinds = rows["metric"].map(lambda name: about(name).needs)
    for kind, summed in rows.groupby(kinds):
        tables = [summed]
        if run.folder.has_table(kind):
            of_sample = run.folder.read_table(kind).astype(COLUMNS)
            tables.append(of_sample[~of_sample["metric"].isin(summed["metric"])])
        run.folder.write_table(kind, pd.concat(tables, ignore_index=True))
    if job.options.keep_states == "none":
        run.folder.drop_states()
    # without the first the run is finished
    for part in sorted((run.path / "stream").iterdir()):
        part.unlink()
    (run.path / "stream").rmdir()

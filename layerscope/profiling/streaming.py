"""One pass over data of any size: what is kept of them is sums, and a seeded sample of the samples.

Process r of n takes chunks r, r + n, … of the data, measures each as a small run of its own (plan,
batches, tensors), adds it to its sums and forgets it. A sample is kept by a priority that its place
and the seed decide, whoever reads it. After the pass the kept samples are profiled as an ordinary
run, in whose table the rows from sums over all samples then take the place of theirs.
"""

import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from layerscope.core.errors import LayerscopeError, count
from layerscope.core.prefetch import ahead
from layerscope.core.processes import Team
from layerscope.core.progress import Reporter
from layerscope.inputs import Corpus
from layerscope.inputs.streams import Chunk, Stream
from layerscope.metrics.factors import FromRows
from layerscope.metrics.moments import ValueSums
from layerscope.models.capture import evaluating
from layerscope.models.weights import is_parallel
from layerscope.profiling.chunk_sums import ChunkSums, compared, most_classes, pooled_of
from layerscope.profiling.forward_pass import (
    Tensors,
    batches_in,
    compute,
    joined,
    read,
    refuse_hopeless,
)
from layerscope.profiling.identity import refuse_another
from layerscope.profiling.plan import Job, make_plan
from layerscope.profiling.source import Source
from layerscope.profiling.stream_sums import StreamSums, as_first, relative_error, values_in
from layerscope.runs import COLUMNS, Run, RunFolder
from layerscope.runs.folder import refuse_other_files
from layerscope.runs.registry import about, measured

REST = 40
"""A checkpoint is written once this many times as long as the last one took has passed: 2.5 % of the time at most."""
WHOLE = "0-of-all.safetensors"
"""What all processes of another number have summed up, while their parts are removed."""
NEAR = 64
"""Samples whose mean is the point around which products between layers are summed."""


class StreamPass:
    """The pass of one process of a team: it takes the chunks whose number is its own modulo their size.

    Where each process has a part of every weight, all take every chunk together, and the leader
    keeps the sums.
    """

    def __init__(
        self, job: Job, stream: Stream, parts: list[Path], begun: dict[str, Any], team: Team
    ) -> None:
        self.job, self.stream, self.team, self.size = job, stream, team, len(parts)
        self.rank = team.rank % self.size
        self.file, self.writes = parts[self.rank], team.rank < self.size
        there = next((file for file in (self.file, parts[0]) if file.is_file()), None)
        totals = StreamSums(begun) if there is None else StreamSums.load(there)
        self.totals = totals if there == self.file else totals.begin()
        self.written = self.cost = 0.0

    def run(self, reporter: Reporter) -> None:
        """Take every chunk that is left; what is finished is kept whatever happens."""
        totals, team = self.totals, self.team
        summing = ChunkSums(self.job, totals.sums)
        shifts = self._shifts() if summing.products and self.rank == 0 else {}
        turn = totals.next // self.size
        started = team.meet((turn, totals.reached, shifts))
        together, shifts = max(other for other, *_ in started), started[0][2]
        totals.reached = any(reached for _, reached, _ in started)
        mine = range(turn * self.size + self.rank, sys.maxsize, self.size)
        chunks = self.stream.chunks(
            mine.start, wanted=lambda number: number in mine and not totals.has(number)
        )
        due = (chunk for chunk in chunks if chunk.number in mine)
        with (
            evaluating(self.job.model.module),
            reporter.bar("forward", self.stream.length, "samples") as advance,
        ):
            advance(totals.seen)
            while turn < together or not (totals.reached or totals.ended):
                try:
                    chunk = next(due, None)
                    new = chunk if chunk is not None and chunk.read else None
                    measured = None if new is None else self._measured(new.samples, new.names)
                except BaseException:
                    self._save()
                    raise
                if new is not None:
                    self._take(new, measured, summing, shifts)
                    advance(new.rows)
                turn += 1
                totals.next = turn * self.size
                if turn > together:  # one that was killed later than the others has met them before
                    met = team.meet((chunk is None, self._values()))
                    totals.reached = self._reached([values for _, values in met[: self.size]])
                    totals.ended = all(is_last for is_last, _ in met)
                self._checkpoint()
        self._save()

    def _measured(self, samples: Sequence[str], names: Sequence[str]) -> tuple[Any, Tensors] | None:
        """Return the plan of some samples and what was measured of them; None where none of them has a token."""
        if not any(self.job.model.encoder.lengths(samples)):
            return None
        job = replace(self.job, corpus=Corpus(self.stream.name, "text", samples, names))
        plan = make_plan(job)
        batches = ahead(partial(read, job), batches_in(plan))
        parts = [
            part
            for rows, inputs in batches
            for part in compute(job, rows, lambda _: None, inputs=inputs)
        ]
        return plan, joined(parts)

    def _take(
        self,
        chunk: Chunk,
        measured: tuple[Any, Tensors] | None,
        summing: ChunkSums,
        shifts: Tensors,
    ) -> None:
        totals, seed, most = self.totals, self.job.options.seed, self.job.options.reservoir or 0
        totals.seen += chunk.rows
        totals.empty += chunk.rows - (0 if measured is None else len(measured[0]))
        if measured is not None:
            plan, tensors = measured
            totals.cut += plan.attrs["cut"]
            totals.broken += int((tensors["broken"] >= 0).sum())
            refuse_hopeless(self.job.model, plan["name"], tensors["broken"])
            summing.take(tensors, shifts)
            if summing.by_class and chunk.labels is not None:
                labels = [chunk.labels[i] for i in plan["sample"]]
                if (classes := totals.numbered(labels, most_classes(self.job))) is not None:
                    summing.take_classes(tensors, classes)
        n = len(chunk.samples)
        priorities = np.random.default_rng([seed, 5, chunk.number]).random(n).tolist()
        places = zip(priorities, [chunk.number] * n, range(n), strict=True)
        about = zip(chunk.samples, chunk.names, chunk.labels or [None] * n, strict=True)
        highest = totals.kept[-1][0] if len(totals.kept) >= most else 1.0
        fresh = [
            (*place, *sample)
            for place, sample in zip(places, about, strict=True)
            if place[0] < highest
        ]
        totals.kept = sorted([*totals.kept, *fresh])[:most]

    def _shifts(self) -> Tensors:
        """Return a point near the mean of each layer by pooling: that of the first samples, or where sums began."""
        begun = {
            key.removeprefix("products "): sums
            for key, sums in self.totals.sums.items()
            if "products " in key
        }
        if begun:
            return {pooling: sums.shift for pooling, sums in begun.items()}
        first = self.stream.head.take(range(min(NEAR, len(self.stream.head))))
        with evaluating(self.job.model.module):
            measured = self._measured(first.samples, first.names)
        assert measured is not None  # what a model is found by has tokens
        states = compared(pooled_of(measured[1]), self.job.vectors)
        return {
            pooling: vectors.double().mean(1).nan_to_num(0.0) for pooling, vectors in states.items()
        }

    def _values(self) -> dict[str, ValueSums]:
        """Return the sums that say whether the pass is at its end."""
        return values_in(
            self.totals.sums, self.job.options.metrics if self.job.options.until_stderr else ()
        )

    def _reached(self, parts: list[dict[str, ValueSums]]) -> bool:
        if self.job.options.until_stderr is None:
            return False
        sums: dict[str, ValueSums] = {}
        for key, values in (item for part in parts for item in part.items()):
            sums[key] = sums[key] + values if key in sums else values
        return bool(
            sums and max(map(relative_error, sums.values())) <= self.job.options.until_stderr
        )

    def _save(self) -> None:
        if self.writes:
            self.totals.save(self.file)

    def _checkpoint(self) -> None:
        start = time.monotonic()
        if start - self.written >= REST * self.cost:
            self._save()
            self.written = time.monotonic()
            self.cost = self.written - start


def text_head(stream: Stream) -> Corpus:
    """Return the first samples of a stream of texts; raise `LayerscopeError` for other data."""
    if stream.modality != "text":
        raise LayerscopeError(
            f"`keep_states` streams texts, and {stream.name} holds {stream.modality} samples: leave it out"
        )
    return stream.head


def of_data(manifest: dict[str, Any], stream: Stream) -> dict[str, Any]:
    """Return the manifest of a pass: that of its first samples, with what tells the data from others."""
    data = {**manifest["data"], "samples": stream.length, "fingerprint": stream.fingerprint}
    return {**manifest, "data": data}


def sum_stream(
    job: Job, stream: Stream, path: Path, begun: dict[str, Any], reporter: Reporter, team: Team
) -> StreamSums | None:
    """Run the pass, or what is left of it, and return what all processes have summed up; None for a finished run."""
    size = 1 if is_parallel(job.model.module) else team.size
    parts = [path / "stream" / f"{rank}-of-{size}.safetensors" for rank in range(size)]
    files = sorted((path / "stream").glob("*-of-*.safetensors"))
    if RunFolder.exists(path):
        info = RunFolder(path).manifest
        refuse_another(path, {**info, "data": info.get("stream", info)["data"]}, begun)
        if not any(file.name.startswith("0-") for file in files):
            return None
    else:
        refuse_other_files(path)
    for sums in map(StreamSums.load, files):
        refuse_another(path, sums.begun, begun)
    team.meet()
    if team.leads:
        share_anew(files, parts, most_classes(job))
    team.meet()
    begun_parts = [StreamSums.load(file) for file in parts if file.is_file()]
    is_done = len(begun_parts) == size and all(sums.ended or sums.reached for sums in begun_parts)
    if not all(team.meet(is_done)):
        reporter.say(_line(job, stream, path, sum(sums.seen for sums in begun_parts)))
        StreamPass(job, stream, parts, begun, team).run(reporter)
        team.meet()
    whole = StreamSums.load(parts[0])
    for part in parts[1:]:
        whole.join(StreamSums.load(part), most_classes(job))
    return whole


def share_anew(files: list[Path], parts: list[Path], most: int) -> None:
    """Make the parts of another number of processes the first part of this one; killed in between, it goes on."""
    whole = parts[0].with_name(WHOLE)
    if not whole.exists() and {*files} - {*parts}:
        as_first({file: StreamSums.load(file) for file in files}, most).save(whole)
    if whole.exists():
        for file in {*files} - {whole}:
            file.unlink()
        whole.replace(parts[0])


def _line(job: Job, stream: Stream, path: Path, seen: int) -> str:
    if seen:
        return f"resuming {str(path)!r}: {count(seen, 'sample')} measured"
    length = (
        "as many samples as there are" if stream.length is None else count(stream.length, "sample")
    )
    model = job.model
    return (
        f"{model.loaded.name}: {model.size} · {stream.name}: {length}, chunk by chunk; sums and "
        f"{count(job.options.reservoir or 0, 'seeded sample')} are kept in {path}"
    )


def finish(run: Run, job: Job, totals: StreamSums) -> None:
    """Put the rows of all samples in the place of those of the kept ones, and drop what is not to be kept."""
    summing = ChunkSums(job, totals.sums)
    source = Source(run, summing.options)
    source.total = totals.seen
    rows = pd.DataFrame([*summing.rows(source)], columns=list(COLUMNS))
    rows = rows.astype(COLUMNS).assign(part=run.info["model"]["part"])
    same = [
        name
        for name in COLUMNS
        if name not in ("variant", "value", "stderr", "n", "n_skipped", "step")
    ]
    # what choices a metric of rows makes by their number is called otherwise for another number
    own_choice = {metric.name for metric, how in measured(FromRows) if not how.orders}
    for kind, summed_rows in rows.groupby(rows["metric"].map(lambda name: about(name).needs)):
        both = pd.concat(
            [run.folder.read_table(str(kind)).astype(COLUMNS), summed_rows], ignore_index=True
        )
        variant = both["variant"].mask(both["metric"].isin(own_choice))
        order = both.groupby([*same, variant], sort=False, dropna=False).ngroup()
        both = (
            both.assign(order=order)
            .sort_values("order", kind="stable")
            .drop_duplicates("order", keep="last")
        )
        run.folder.write_table(str(kind), both.drop(columns="order"))
    if job.options.keep_states == "none":
        run.folder.drop_states()
    for part in sorted((run.path / "stream").iterdir()):  # without the first the run is finished
        part.unlink()
    (run.path / "stream").rmdir()

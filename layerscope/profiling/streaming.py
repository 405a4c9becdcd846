"""One pass over data of any size: what is kept of them is sums, and a seeded sample of the samples."""

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
from layerscope.profiling.gathered import Gathered, as_first, relative_error, values_in
from layerscope.profiling.identity import refuse_another
from layerscope.profiling.passing import Tensors, batches_in, compute, joined, read, refuse_hopeless
from layerscope.profiling.plan import Job, make_plan
from layerscope.profiling.source import Source
from layerscope.profiling.summing import Summing, compared, most_classes, pooled_of
from layerscope.runs import COLUMNS, Run, RunFolder
from layerscope.runs.folder import refuse_other_files
from layerscope.runs.registry import about, measured

REST = 40
"""A checkpoint is written once this many times as long as the last one took has passed: 2.5 % of the time at most."""
WHOLE = "0-of-all.safetensors"
"""What all processes of another number have gathered, while their parts are removed."""
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
        found = Gathered(begun) if there is None else Gathered.load(there)
        self.gathered = found if there == self.file else found.begin()
        self.written = self.cost = 0.0

    def run(self, reporter: Reporter) -> None:
        """Take every chunk that is left; what is finished is kept whatever happens."""
        gathered, team = self.gathered, self.team
        summing = Summing(self.job, gathered.sums)
        shifts = self._shifts() if summing.products and self.rank == 0 else {}
        turn = gathered.next // self.size
        started = team.meet((turn, gathered.reached, shifts))
        together, shifts = max(other for other, *_ in started), started[0][2]
        gathered.reached = any(reached for _, reached, _ in started)
        mine = range(turn * self.size + self.rank, sys.maxsize, self.size)
        chunks = self.stream.chunks(
            mine.start, wanted=lambda number: number in mine and not gathered.has(number)
        )
        own = (chunk for chunk in chunks if chunk.number in mine)
        with (
            evaluating(self.job.model.module),
            reporter.bar("forward", self.stream.length, "samples") as advance,
        ):
            advance(gathered.seen)
            while turn < together or not (gathered.reached or gathered.ended):
                try:
                    chunk = next(own, None)
                    new = chunk if chunk is not None and chunk.read else None
                    measured = None if new is None else self._measured(new.samples, new.names)
                except BaseException:
                    self._save()
                    raise
                if new is not None:
                    self._take(new, measured, summing, shifts)
                    advance(new.rows)
                turn += 1
                gathered.next = turn * self.size
                if turn > together:  # one that was killed later than the others has met them before
                    met = team.meet((chunk is None, self._values()))
                    gathered.reached = self._reached([values for _, values in met[: self.size]])
                    gathered.ended = all(is_last for is_last, _ in met)
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
        self, chunk: Chunk, found: tuple[Any, Tensors] | None, summing: Summing, shifts: Tensors
    ) -> None:
        gathered, seed, most = self.gathered, self.job.options.seed, self.job.options.reservoir or 0
        gathered.seen += chunk.rows
        gathered.empty += chunk.rows - (0 if found is None else len(found[0]))
        if found is not None:
            plan, tensors = found
            gathered.cut += plan.attrs["cut"]
            gathered.broken += int((tensors["broken"] >= 0).sum())
            refuse_hopeless(self.job.model, plan["name"], tensors["broken"])
            summing.take(tensors, shifts)
            if summing.by_class and chunk.labels is not None:
                labels = [chunk.labels[i] for i in plan["sample"]]
                if (classes := gathered.numbered(labels, most_classes(self.job))) is not None:
                    summing.take_classes(tensors, classes)
        n = len(chunk.samples)
        priorities = np.random.default_rng([seed, 5, chunk.number]).random(n).tolist()
        places = zip(priorities, [chunk.number] * n, range(n), strict=True)
        about = zip(chunk.samples, chunk.names, chunk.labels or [None] * n, strict=True)
        highest = gathered.kept[-1][0] if len(gathered.kept) >= most else 1.0
        fresh = [
            (*place, *own) for place, own in zip(places, about, strict=True) if place[0] < highest
        ]
        gathered.kept = sorted([*gathered.kept, *fresh])[:most]

    def _shifts(self) -> Tensors:
        """Return a point near the mean of each layer by pooling: that of the first samples, or where sums began."""
        begun = {
            key.removeprefix("products "): sums
            for key, sums in self.gathered.sums.items()
            if "products " in key
        }
        if begun:
            return {pooling: sums.shift for pooling, sums in begun.items()}
        first = self.stream.head.take(range(min(NEAR, len(self.stream.head))))
        with evaluating(self.job.model.module):
            found = self._measured(first.samples, first.names)
        assert found is not None  # what a model is found by has tokens
        states = compared(pooled_of(found[1]), self.job.vectors)
        return {pooling: own.double().mean(1).nan_to_num(0.0) for pooling, own in states.items()}

    def _values(self) -> dict[str, ValueSums]:
        """Return the sums that say whether the pass is at its end."""
        return values_in(
            self.gathered.sums, self.job.options.metrics if self.job.options.until_stderr else ()
        )

    def _reached(self, found: list[dict[str, ValueSums]]) -> bool:
        if self.job.options.until_stderr is None:
            return False
        sums: dict[str, ValueSums] = {}
        for key, own in (item for part in found for item in part.items()):
            sums[key] = sums[key] + own if key in sums else own
        return bool(
            sums and max(map(relative_error, sums.values())) <= self.job.options.until_stderr
        )

    def _save(self) -> None:
        if self.writes:
            self.gathered.save(self.file)

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


def gather(
    job: Job, stream: Stream, path: Path, begun: dict[str, Any], reporter: Reporter, team: Team
) -> Gathered | None:
    """Run the pass, or what is left of it, and return what all processes have gathered; None for a finished run."""
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
    for found in map(Gathered.load, files):
        refuse_another(path, found.begun, begun)
    team.meet()
    if team.leads:
        share_anew(files, parts, most_classes(job))
    team.meet()
    there = {file: Gathered.load(file) for file in parts if file.is_file()}
    done = team.meet(
        len(there) == size and all(found.ended or found.reached for found in there.values())
    )
    if not all(done):
        reporter.say(_line(job, stream, path, sum(found.seen for found in there.values())))
        StreamPass(job, stream, parts, begun, team).run(reporter)
        team.meet()
    whole = Gathered.load(parts[0])
    for part in parts[1:]:
        whole.join(Gathered.load(part), most_classes(job))
    return whole


def share_anew(files: list[Path], parts: list[Path], most: int) -> None:
    """Make the parts of another number of processes the first part of this one; killed in between, it goes on."""
    whole = parts[0].with_name(WHOLE)
    if not whole.exists() and {*files} - {*parts}:
        as_first({file: Gathered.load(file) for file in files}, most).save(whole)
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


def finish(run: Run, job: Job, gathered: Gathered) -> None:
    """Put the rows of all samples in the place of those of the kept ones, and drop what is not to be kept."""
    summing = Summing(job, gathered.sums)
    source = Source(run, summing.options)
    source.total = gathered.seen
    rows = pd.DataFrame([*summing.rows(source)], columns=list(COLUMNS))
    rows = rows.astype(COLUMNS).assign(part=run.info["model"]["part"])
    same = [
        name
        for name in COLUMNS
        if name not in ("variant", "value", "stderr", "n", "n_skipped", "step")
    ]
    # what choices a metric of rows makes by their number is called otherwise for another number
    own_choice = {metric.name for metric, how in measured(FromRows) if not how.orders}
    for kind, own in rows.groupby(rows["metric"].map(lambda name: about(name).needs)):
        both = pd.concat([run.folder.read_table(str(kind)).astype(COLUMNS), own], ignore_index=True)
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
    for part in sorted(
        (run.path / "stream").iterdir()
    ):  # without the first of them the run is finished
        part.unlink()
    (run.path / "stream").rmdir()

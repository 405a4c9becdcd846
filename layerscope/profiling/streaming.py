"""One pass over data of any size: what is kept of them is sums, and a seeded sample of the samples."""

import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from layerscope.core.ahead import ahead
from layerscope.core.errors import LayerscopeError, count
from layerscope.core.processes import Team
from layerscope.core.progress import Reporter
from layerscope.inputs import Corpus
from layerscope.inputs.streams import Chunk, Stream
from layerscope.metrics.factors import FromRows
from layerscope.metrics.moments import ValueSums
from layerscope.models.capture import evaluating
from layerscope.models.weights import is_parallel
from layerscope.profiling.gathered import Gathered, Kept, relative_error, values_in
from layerscope.profiling.identity import refuse_another
from layerscope.profiling.passing import Tensors, batches_in, compute, joined, read, refuse_hopeless
from layerscope.profiling.plan import Job, make_plan
from layerscope.profiling.source import Source
from layerscope.profiling.summing import Summing, as_summed, layers_of, of_stream
from layerscope.runs import COLUMNS, Run, RunFolder
from layerscope.runs.folder import refuse_other_files
from layerscope.runs.registry import about, measured

REST = 40
"""A checkpoint is written once this many times as long as the last one took has passed: 2.5 % of the time at most."""
NEAR = 64
"""Samples whose mean is the point around which products between layers are summed."""


class StreamPass:
    """The pass of one process of a team: it takes the chunks whose number is its own modulo their size.

    Where each process has a part of every weight, all take every chunk together, and the leader keeps the sums.
    """

    def __init__(self, job: Job, stream: Stream, parts: list[Path], begun: dict[str, Any], team: Team) -> None:
        self.job, self.stream, self.team, self.size = job, stream, team, len(parts)
        self.rank = team.rank % self.size
        self.file, self.writes = parts[self.rank], team.rank < self.size
        self.gathered = Gathered.load(self.file) if self.file.is_file() else Gathered(begun)
        self.written = self.cost = 0.0

    def run(self, reporter: Reporter) -> None:
        """Take every chunk that is left; what is finished is kept whatever happens."""
        gathered, team = self.gathered, self.team
        summing = Summing(self.job, gathered.sums)
        if summing.products and not gathered.shifts and self.rank == 0:
            gathered.shifts = self._shifts()
        turn = gathered.next // self.size
        started = team.meet((turn, gathered.reached, gathered.shifts))
        together, gathered.shifts = max(other for other, *_ in started), started[0][2]
        ended = any(reached for _, reached, _ in started)
        chunks = self.stream.chunks(gathered.next, wanted=lambda number: number % self.size == self.rank)
        own = (chunk for chunk in chunks if chunk.read)
        with evaluating(self.job.model.module), reporter.bar("forward", self.stream.length, "samples") as advance:
            advance(gathered.seen)
            while turn < together or not ended:
                chunk, measured = self._next(own)
                if chunk is not None:
                    self._take(chunk, *measured, summing)
                    advance(chunk.rows)
                turn += 1
                gathered.next = turn * self.size
                if turn > together:  # one that was killed later than the others has met them before
                    met = team.meet((chunk is None, self._values()))
                    gathered.reached = self._reached([values for _, values in met[: self.size]])
                    ended = gathered.reached or all(is_last for is_last, _ in met)
                self._checkpoint()
        self._save()

    def _next(self, own: Iterator[Chunk]) -> tuple[Chunk | None, tuple[Any, Tensors]]:
        """Read and measure a chunk; nothing that was added up is lost where that fails."""
        nothing: tuple[Any, Tensors] = None, {}
        try:
            chunk = next(own, None)
            lengths = () if chunk is None else self.job.model.encoder.lengths(chunk.samples[:1])
            texts = () if chunk is None else chunk.samples
            is_empty = chunk is None or not (any(map(str.strip, texts)) or any(lengths))
            return chunk, nothing if chunk is None or is_empty else self._measured(chunk)
        except BaseException:
            self._save()
            raise

    def _take(self, chunk: Chunk, plan: Any, tensors: Tensors, summing: Summing) -> None:
        gathered, options = self.gathered, self.job.options
        gathered.seen += chunk.rows
        gathered.empty += chunk.rows - len(chunk.samples) if tensors else chunk.rows
        if tensors:
            gathered.cut += plan.attrs["cut"]
            gathered.empty += plan.attrs["empty"]
            gathered.broken += int((tensors["broken"] >= 0).sum())
            refuse_hopeless(self.job.model, plan["name"], tensors["broken"])
            summing.take(tensors, gathered.shifts)
        priorities = np.random.default_rng([options.seed, 5, chunk.number]).random(len(chunk.samples)).tolist()
        labels = chunk.labels or [None] * len(priorities)
        most, kept = options.reservoir or 0, gathered.kept
        highest = kept[-1].priority if len(kept) >= most else 1.0
        rows = zip(priorities, chunk.samples, chunk.names, labels, strict=True)
        fresh = [Kept(p, chunk.number, i, *about) for i, (p, *about) in enumerate(rows) if p < highest]
        gathered.kept = sorted([*kept, *fresh])[:most]

    def _measured(self, chunk: Chunk) -> tuple[Any, Tensors]:
        corpus = Corpus(self.stream.name, "text", chunk.samples, chunk.names)
        job = replace(self.job, corpus=corpus)
        plan = make_plan(job)
        batches = ahead(partial(read, job), batches_in(plan))
        parts = [part for rows, inputs in batches for part in compute(job, rows, lambda _: None, inputs=inputs)]
        return plan, joined(parts)

    def _shifts(self) -> Tensors:
        """Return a point near the mean of each layer by pooling: that of the first samples."""
        first = self.stream.head.take(range(min(NEAR, len(self.stream.head))))
        with evaluating(self.job.model.module):
            _, tensors = self._measured(Chunk(0, len(first), first.samples, first.names))
        fine = tensors["broken"] < 0
        pooled = {key: values[-1:] if key.startswith("normed.") else values for key, values in tensors.items()}
        poolings = dict.fromkeys((*self.job.vectors.pairs, *self.job.vectors.poolings))
        return {name: layers_of(pooled, name)[:, fine].double().mean(1).nan_to_num(0.0) for name in poolings}

    def _values(self) -> dict[str, ValueSums]:
        """Return the sums that say whether the pass is at its end."""
        return values_in(self.gathered.sums, self.job.options.metrics if self.job.options.until_stderr else ())

    def _reached(self, found: list[dict[str, ValueSums]]) -> bool:
        if self.job.options.until_stderr is None:
            return False
        sums: dict[str, ValueSums] = {}
        for key, own in (item for part in found for item in part.items()):
            sums[key] = sums[key] + own if key in sums else own
        return bool(sums and max(map(relative_error, sums.values())) <= self.job.options.until_stderr)

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
            f"keep_states streams texts, and {stream.name} holds {stream.modality} samples: leave it out"
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
    folder = path / "stream"
    size = 1 if is_parallel(job.model.module) else team.size
    whole, parts = folder / "whole.safetensors", [folder / f"{i}-of-{size}.safetensors" for i in range(size)]
    if RunFolder.exists(path):
        info = RunFolder(path).manifest
        refuse_another(path, {**info, "data": info.get("stream", info)["data"]}, begun)
    else:
        refuse_other_files(path)
    started = [whole] if whole.is_file() else sorted(folder.glob("*-of-*.safetensors"))
    for there in started:
        refuse_another(path, Gathered.load(there).begun, begun)
        if there not in (whole, *parts):
            raise LayerscopeError(
                f"the pass in {str(path)!r} was begun by {there.stem.split('-')[-1]} processes: go on with as "
                "many, or choose another folder with `out`"
            )
    if RunFolder.exists(path) and not started:
        return None
    team.meet()
    if not whole.is_file():
        reporter.say(_plan_of(job, stream, path, started))
        StreamPass(replace(job, options=of_stream(job.options)), stream, parts, begun, team).run(reporter)
        team.meet()
        if team.leads:
            found = Gathered.load(parts[0])
            for part in parts[1:]:
                found.join(Gathered.load(part))
            found.save(whole)
        team.meet()
    if team.leads:
        for part in parts:
            part.unlink(missing_ok=True)
    return Gathered.load(whole)


def _plan_of(job: Job, stream: Stream, path: Path, started: list[Path]) -> str:
    if started:
        seen = sum(Gathered.load(there).seen for there in started)
        return f"going on with {str(path)!r}: {count(seen, 'sample')} measured"
    length = "samples, as many as there are" if stream.length is None else count(stream.length, "sample")
    stack = job.model.stack
    return (
        f"{job.model.loaded.name}: {stack.depth} layers of {stack.width} · {stream.name}: {length}, chunk by chunk; "
        f"sums and {count(job.options.reservoir or 0, 'seeded sample')} are kept in {path}"
    )


def of_reservoir(job: Job, stream: Stream, gathered: Gathered) -> Job:
    """Return the job of the samples that were kept, which is that of an ordinary run."""
    corpus = gathered.corpus(stream, job.options.reservoir or 0)
    notes = (*corpus.notes, *gathered.notes(job, stream, len(corpus)))
    return replace(job, corpus=replace(corpus, notes=notes))


def finish(run: Run, job: Job, gathered: Gathered) -> None:
    """Put the rows of all samples in the place of those of the kept ones, and drop what is not to be kept."""
    options = of_stream(job.options)
    source = Source(run, as_summed(options))
    source.total = gathered.seen
    rows = pd.DataFrame([*Summing(replace(job, options=options), gathered.sums).rows(source)], columns=list(COLUMNS))
    rows = rows.astype(COLUMNS).assign(part=run.info["model"]["part"])
    same = [name for name in COLUMNS if name not in ("variant", "value", "stderr", "n", "n_skipped", "step")]
    # what choices a metric of rows makes by their number is called otherwise for another number
    own_choice = {metric.name for metric, how in measured(FromRows) if not how.orders}
    for kind, own in rows.groupby(rows["metric"].map(lambda name: about(name).needs)):
        both = pd.concat([run.folder.read_table(str(kind)).astype(COLUMNS), own], ignore_index=True)
        variant = both["variant"].mask(both["metric"].isin(own_choice))
        order = both.groupby([*same, variant], sort=False, dropna=False).ngroup()
        both = both.assign(order=order).sort_values("order", kind="stable").drop_duplicates("order", keep="last")
        run.folder.write_table(str(kind), both.drop(columns="order"))
    if job.options.keep_states == "none":
        run.folder.drop_states()
    (run.path / "stream" / "whole.safetensors").unlink()
    (run.path / "stream").rmdir()

"""The pass: every batch of the plan once, shard by shard, whatever interrupts it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from layerscope.core.errors import LayerscopeError
from layerscope.core.processes import Team
from layerscope.core.progress import Reporter
from layerscope.models import LayeredModel
from layerscope.models.capture import evaluating
from layerscope.models.forward import Inputs, is_out_of_memory
from layerscope.profiling.measure import BatchMeasure
from layerscope.profiling.plan import Job, view_of
from layerscope.runs.folder import RunFolder

Tensors = dict[str, Tensor]

HOPELESS = 64
"""A pass stops where this many samples have all given NaN or infinity."""


class Measure(Protocol):
    """Sees every layer of one batch, and says what is to be kept of it, `broken` [B] among it."""

    def visit(self, layer: int, site: str, tokens: Tensor) -> None:
        """Look at the states of one layer."""

    def tensors(self) -> Tensors:
        """Return what is kept: [B], or [layers, …] with the samples, or their tokens, along the second axis."""


Measures = Callable[[Job, Inputs, pd.DataFrame], Measure]


def run_pass(
    job: Job, folder: RunFolder, reporter: Reporter, measure: Measures = BatchMeasure, team: Team | None = None
) -> None:
    """Compute every shard that is not finished; a batch that does not fit into memory is computed in halves.

    The processes of a team take a shard each and meet after it, so that an error of one ends all; neighbouring shards
    hold texts of one length, so that none waits for long. Raises `LayerscopeError` where a single sample does not fit,
    or where no sample has finite states.
    """
    team = team or Team()
    todo: list[int] = team.meet([shard for shard in folder.shards if not folder.is_finished(shard)])[0]
    _refuse_hopeless(folder, job.model)

    def halved(rows: pd.DataFrame) -> None:
        batch = int(rows["batch"].iloc[0])
        folder.log("halved", batch=batch, rows=len(rows))
        reporter.say(f"out of memory: batch {batch} of {len(rows)} samples is computed in halves")

    with evaluating(job.model.module), reporter.bar("forward", len(folder.plan), "samples") as advance:
        advance(len(folder.plan) - sum(len(folder.rows(shard)) for shard in todo))
        for start in range(0, len(todo), team.size):
            turn = todo[start : start + team.size]
            for shard in turn[team.rank : team.rank + 1]:
                parts = []
                for _, rows in folder.rows(shard).groupby("batch", sort=True):
                    parts += list(compute(job, rows, halved, measure))
                    advance(len(rows))
                folder.write_shard(shard, joined(parts))
                folder.log("shard", shard=shard, forwards=len(parts), rows=len(folder.rows(shard)))
            team.meet()
            advance(sum(len(folder.rows(shard)) for rank, shard in enumerate(turn) if rank != team.rank))
            _refuse_hopeless(folder, job.model)


def compute(
    job: Job, rows: pd.DataFrame, halved: Callable[[pd.DataFrame], None], measure: Measures = BatchMeasure
) -> Iterator[Tensors]:
    """Yield the measurements of a batch, in one piece or, after a call of `halved`, in two where memory runs out."""
    try:
        yield _forward(job, rows, measure)
        return
    except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        if len(rows) == 1:
            raise LayerscopeError(
                f"out of memory with a single sample of {rows['length'].iloc[0]} tokens ({rows['name'].iloc[0]}): "
                "try a smaller `max_length` or `dtype='bfloat16'`; what is finished is kept"
            ) from error
    if job.model.device.type == "cuda":
        torch.cuda.empty_cache()
    halved(rows)
    half = len(rows) // 2
    yield from compute(job, rows.iloc[:half], halved, measure)
    yield from compute(job, rows.iloc[half:], halved, measure)


@torch.inference_mode()
def _forward(job: Job, rows: pd.DataFrame, measure: Measures) -> Tensors:
    samples = [view_of(job, int(sample), int(view)) for sample, view in zip(rows["sample"], rows["view"], strict=True)]
    inputs = job.model.encoder.batch(samples).to(job.model.device)
    measured = measure(job, inputs, rows)
    job.model.run(inputs, measured.visit)
    return measured.tensors()


def joined(parts: list[Tensors]) -> Tensors:
    """Join batches along the samples; rows the lens has read count on from batch to batch."""
    out: Tensors = {}
    start, shifted = 0, []
    for part in parts:
        if "lens.row" in part:
            shifted.append(part["lens.row"] + start)
        start += len(part["broken"])
    for key, first in parts[0].items():
        out[key] = torch.cat([part[key] for part in parts], 0 if first.ndim == 1 else 1)
    return out | ({"lens.row": torch.cat(shifted)} if shifted else {})


def _refuse_hopeless(folder: RunFolder, model: LayeredModel) -> None:
    """Stop where none of the first samples, or none at all, has a finite state at every layer."""
    originals = np.flatnonzero(folder.plan["view"].to_numpy() == 0)
    seen, layer = 0, model.stack.depth
    for shard in pd.unique(folder.plan["shard"].to_numpy()[originals]):
        if not folder.is_finished(shard):
            break
        with folder.shard(shard) as file:
            broken = file.get_tensor("broken")
        if bool((broken < 0).any()):
            return
        seen, layer = seen + len(broken), min(layer, int(broken.min()))
    if seen >= min(HOPELESS, len(originals)):
        raise LayerscopeError(
            f"layer {layer} of {model.loaded.name} gives NaN or infinity for every sample (first: "
            f"{folder.plan['name'].iloc[originals[0]]}): try `dtype='float32'`, or look at the weights"
        )

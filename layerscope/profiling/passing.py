"""The pass: every batch of the plan once, shard by shard, whatever interrupts it."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd
import torch
from torch import Tensor

from layerscope.errors import LayerscopeError
from layerscope.inputs import Corpus
from layerscope.models import LayeredModel, Vectors
from layerscope.models.capture import evaluating
from layerscope.profiling.measure import BatchMeasure
from layerscope.profiling.options import Options
from layerscope.profiling.plan import view_of
from layerscope.progress import Teller
from layerscope.runs.folder import RunFolder

Tensors = dict[str, Tensor]

HOPELESS = 64
"""A pass stops where this many samples have all given NaN or infinity."""


def run_pass(
    model: LayeredModel,
    corpus: Corpus,
    options: Options,
    vectors: Vectors,
    folder: RunFolder,
    teller: Teller,
) -> None:
    """Compute every shard that is not finished; a batch that does not fit into memory is computed in halves."""
    todo = [shard for shard in folder.shards if not folder.is_finished(shard)]
    _refuse_hopeless(folder, model)
    done = sum(len(folder.rows(shard)) for shard in folder.shards if shard not in set(todo))
    job = _Pass(model, corpus, options, vectors, folder, teller)
    with evaluating(model.module), teller.bar("forward", len(folder.plan), "samples") as advance:
        advance(done)
        for shard in todo:
            parts = []
            for _, rows in folder.rows(shard).groupby("batch", sort=True):
                parts += list(job.compute(rows))
                advance(len(rows))
            folder.write_shard(shard, joined(parts))
            folder.log("shard", shard=shard, forwards=len(parts), rows=len(folder.rows(shard)))
            _refuse_hopeless(folder, model)


class _Pass:
    def __init__(
        self,
        model: LayeredModel,
        corpus: Corpus,
        options: Options,
        vectors: Vectors,
        folder: RunFolder,
        teller: Teller,
    ) -> None:
        self.model, self.corpus, self.options, self.vectors = model, corpus, options, vectors
        self.folder, self.teller = folder, teller

    def compute(self, rows: pd.DataFrame) -> Iterator[Tensors]:
        """Yield the measurements of a batch, in one piece or, where memory runs out, in halves."""
        try:
            yield self._forward(rows)
            return
        except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
            if not _out_of_memory(error):
                raise
            if len(rows) == 1:
                raise LayerscopeError(
                    f"out of memory with a single sample of {rows['length'].iloc[0]} tokens ({rows['name'].iloc[0]}): "
                    "take a smaller --max-length or --dtype bfloat16; what is finished is kept"
                ) from error
        if self.model.device.type == "cuda":
            torch.cuda.empty_cache()
        batch, half = int(rows["batch"].iloc[0]), len(rows) // 2
        self.folder.log("halved", batch=batch, rows=len(rows))
        self.teller.say(f"out of memory: batch {batch} of {len(rows)} samples is computed in halves")
        yield from self.compute(rows.iloc[:half])
        yield from self.compute(rows.iloc[half:])

    @torch.inference_mode()
    def _forward(self, rows: pd.DataFrame) -> Tensors:
        pairs = zip(rows["sample"], rows["view"], strict=True)
        samples = [view_of(self.corpus, int(sample), int(view), self.options) for sample, view in pairs]
        inputs = self.model.encoder.batch(samples).to(self.model.device)
        measure = BatchMeasure(self.model, inputs, rows, self.options, self.vectors)
        self.model.run(inputs, measure.visit)
        return measure.tensors()


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


def _out_of_memory(error: Exception) -> bool:
    text = str(error).lower()
    return (
        isinstance(error, (torch.OutOfMemoryError, MemoryError))
        or "out of memory" in text
        or "can't allocate memory" in text
    )


def _refuse_hopeless(folder: RunFolder, model: LayeredModel) -> None:
    """Stop where none of the first samples, or none at all, has a finite state at every layer."""
    originals = folder.plan[folder.plan["view"] == 0]
    seen, layer = 0, model.stack.depth
    for shard in originals["shard"].unique():
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
            f"{originals['name'].iloc[0]}): try --dtype float32, or look at the weights"
        )

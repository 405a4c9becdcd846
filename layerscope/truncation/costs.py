"""What truncated models cost beside the full one: weights and milliseconds, as a table too."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from layerscope.core import Stopwatch, count, jsonable, machine, spans
from layerscope.core.stopwatch import error_of_median
from layerscope.models import Inputs, TextEncoder, evaluating, parameters
from layerscope.models.forward import forward
from layerscope.models.weights import dtype_name
from layerscope.show import Document, Table, columns, row
from layerscope.truncation.checkpoint import auto_class
from layerscope.truncation.depth import Depth, depth_of
from layerscope.truncation.expected import gaps_in
from layerscope.truncation.mixing import mix_in_words
from layerscope.truncation.onnx_file import FILE
from layerscope.truncation.source import Source

TOKENS = 128
"""Tokens of a text where nothing says how long the user's own are."""
SHORTEST = 8
BATCH = 8
LARGE = 500_000_000
"""Weights of a model that is run on one sample at a time."""
SECONDS = 8.0
"""Seconds that the repeats of a measurement may take."""
FEWEST = 5
"""Fewest repeats of a measurement, however long they take."""
MOST = 30
"""Most repeats of a measurement, however quick they are."""
HEAL = "The model was not healed: --heal DATA takes back much of what is lost without the blocks."
RERANKER = "CrossEncoder"
"""The class that loads a reranker."""
REBUILD = "Vectors of a truncated model are not comparable with those of the full model: rebuild your index."


@dataclass(frozen=True)
class Made:
    """A model that was written: its blocks, counted from 0, what holds them, its folder, and its largest difference."""

    kept: tuple[int, ...]
    depth: Depth
    folder: Path
    difference: float


@dataclass(frozen=True)
class Truncated:
    """A truncated model with its figures, those of the full model beside them.

    `layer` is how many layers it has; `dropped` are the blocks it lacks, counted from 1, where it
    does not merely end earlier; `mix` names layers that it mixes, with their weights; `dim` is how
    many dimensions its vectors keep, None for all; `healed` says what
    healing changed. `dtype` is that of its weights, `difference` the
    largest between its output and the full model's layer. `megabytes` are those of its weights on
    disk (of the full model: what they would be), `milliseconds` a sample's share of a forward of
    torch, `speedup` that of the full model over its own, `measured` on what.
    """

    model: str
    layer: int
    depth: int
    path: str
    format: str
    auto: str
    dtype: str
    difference: float
    parameters: int
    megabytes: float
    milliseconds: float
    speedup: float
    full_parameters: int
    full_megabytes: float
    full_milliseconds: float
    measured: str
    dropped: tuple[int, ...]
    mix: str
    dim: int | None
    healed: str

    @property
    def cut(self) -> str:
        """What was done to the full model, in words."""
        what = spans(range(1, self.layer + 1), "layer")
        if self.dropped:
            what = f"without {spans(self.dropped, 'block')}"
        elif self.mix:
            what = f"a mix of {self.mix}"
        what = f"{what} of {self.depth}"
        if self.dim is not None:
            what += f", the first {count(self.dim, 'dimension')}"
        return what

    @property
    def gives_vectors(self) -> bool:
        """Whether its output is compared with other vectors, as a classifier's is not."""
        if self.auto == RERANKER:
            return False
        if self.format == "sentence-transformers" or self.mix:
            return True
        return "Classification" not in self.auto

    def as_dict(self) -> dict[str, Any]:
        """Return the figures as JSON can hold them."""
        return dict(jsonable(self))

    def document(self) -> Document:
        """Return what the model costs beside the full one, as it is shown."""
        rows = (
            row(
                f"{self.layer} of {self.depth}",
                f"{self.parameters:,}",
                f"{self.megabytes:,.1f}",
                f"{self.milliseconds:.2f}",
                f"{self.speedup:.2f}×",
            ),
            row(
                "full model",
                f"{self.full_parameters:,}",
                f"{self.full_megabytes:,.1f}",
                f"{self.full_milliseconds:.2f}",
                "1.00×",
                quiet=True,
            ),
        )
        titles = columns(["layers", "parameters", "MB", "ms", "faster"])
        table = Table("", titles, rows, (f"ms: per sample, {self.measured}.",))
        size = self.megabytes / self.full_megabytes
        answer = f"{self.model}, {self.cut}: {self.speedup:.2f}× as fast, {size:.0%} of the size"
        notes = []
        reasons = []
        if self.gives_vectors:
            notes.append(REBUILD)
        if self.healed:
            reasons.append(self.healed)
        elif self.dropped:
            notes.append(HEAL)
        return Document(
            answer, reasons=tuple(reasons), parts=(table,), notes=tuple(notes)
        )


def measure(source: Source, made: Made, format: str, healed: str) -> Truncated:
    """Return the figures of a model that was written; its speed is measured in turns with the full model's."""
    stack = source.model.stack
    work = workload(source)
    full = made.depth.build(source.module, range(stack.depth))
    model = made.depth.build(source.module, made.kept)
    times = np.median(work.rounds([full, model]), axis=0)
    full_time, time = times.tolist()
    dropped: tuple[int, ...] = ()
    mix = ""
    dtype = dtype_name(source.dtype)
    if gaps_in(made.kept):
        blocks = range(1, stack.depth + 1)
        dropped = tuple(block for block in blocks if block - 1 not in made.kept)
    if source.mix is not None:
        mix = mix_in_words(source.mix)
    if format == "onnx":
        dtype = "float32"
    auto = auto_class(model)
    if format == "sentence-transformers" and source.model.loaded.reranker is not None:
        auto = RERANKER
    return Truncated(
        model=source.name,
        layer=len(made.kept),
        depth=stack.depth,
        path=str(made.folder),
        format=format,
        auto=auto,
        dtype=dtype,
        difference=made.difference,
        parameters=parameters(model),
        megabytes=_on_disk(made.folder),
        milliseconds=time,
        speedup=full_time / time,
        full_parameters=parameters(full),
        full_megabytes=megabytes(full, source.dtype),
        full_milliseconds=full_time,
        measured=work.measured,
        dropped=dropped,
        mix=mix,
        dim=source.dim,
        healed=healed,
    )


def _on_disk(folder: Path) -> float:
    """Return the megabytes of the weights in a folder."""
    files = (*folder.glob(f"{FILE}*"), *folder.rglob("*.safetensors"))
    return sum(path.stat().st_size for path in files) / 1e6


@dataclass(frozen=True)
class Cost:
    """One depth: weights, their megabytes in the checkpoint's dtype, a sample's share of a forward, × faster.

    `milliseconds_error` is the standard error of the median time.
    """

    parameters: int
    megabytes: float
    milliseconds: float
    speedup: float
    milliseconds_error: float


@dataclass(frozen=True)
class Costs:
    """The full model and its depths by their last layer; `measured` says on what."""

    full: Cost
    layers: dict[int, Cost]
    measured: str


@dataclass(frozen=True)
class Workload:
    """The batch that every speed of a source is measured on, and what it is in words."""

    source: Source
    inputs: Inputs
    samples: int
    text: str

    @property
    def measured(self) -> str:
        """What milliseconds are of, and what they were measured on."""
        dtype = dtype_name(self.source.dtype)
        where = machine(self.source.model.device)
        return (
            f"medians over forwards of {self.text}, interleaved, in {dtype}, on {where}"
        )

    def rounds(self, models: Sequence[nn.Module]) -> Any:
        """Return the milliseconds per sample of each of these models, which take turns, `[rounds, models]`."""
        entry = self.source.model.stack.entry
        stopwatch = Stopwatch(self.source.model.device)
        entries = [model.get_submodule(entry) for model in models]
        runs = [partial(forward, module, self.inputs) for module in entries]
        with evaluating(self.source.module):
            seconds = stopwatch.rounds(runs, FEWEST, MOST, SECONDS)
        return 1e3 / self.samples * seconds


def workload(source: Source) -> Workload:
    """Return a batch of images, sounds, or texts as long as those of the source's data are on average.

    Where no data are known these are of 128 tokens; a model that takes no more has as many as it
    takes, by trial.
    """
    model = source.model
    one = source.samples[0]
    encoder: Any = model.encoder
    size = BATCH
    if parameters(source.module) > LARGE or (model.head and model.head.alone):
        size = 1
    if not isinstance(encoder, TextEncoder):
        inputs = encoder.batch([one] * size).to(model.device)
        return Workload(source, inputs, size, f"{count(size, source.unit)} at once")
    length = min(source.tokens or TOKENS, encoder.max_length)
    inputs = _texts_that_fit(source, encoder, size, length)
    tokens = f"{inputs.named['input_ids'].shape[1]} tokens"
    if source.tokens is not None:
        tokens += ", the mean length of the data,"
    return Workload(source, inputs, size, f"{count(size, 'text')} of {tokens} at once")


def _texts_that_fit(source: Source, encoder: Any, size: int, length: int) -> Inputs:
    """Return a batch of texts of this length, or the largest half of it that the model takes."""
    one = source.samples[0]
    device = source.model.device
    text: Any = " ".join([one] * length) if isinstance(one, str) else one.repeat(length)
    entry = source.module.get_submodule(source.model.stack.entry)
    while True:
        inputs: Inputs = replace(encoder, max_length=length).batch([text] * size)
        inputs = inputs.to(device)
        try:
            forward(entry, inputs)
            return inputs
        except Exception:  # longer than the model reads: each fails in its own way
            if length < SHORTEST:
                raise
            length //= 2


def costs_by_depth(source: Source, layers: Sequence[int]) -> Costs:
    """Return what a model costs that ends at each of these layers, 1 … L, speeds measured in turns with its own."""
    deepest = source.model.depth
    ends = [*dict.fromkeys((*layers, deepest))]
    depth = depth_of(source.model, source.samples)
    models = [depth.build(source.module, range(layer)) for layer in ends]
    work = workload(source)
    rounds = work.rounds(models)
    times = np.median(rounds, axis=0).tolist()
    errors = error_of_median(rounds).tolist()
    full_time = times[ends.index(deepest)]
    costs: dict[int, Cost] = {}
    for layer, model, time, error in zip(ends, models, times, errors, strict=True):
        costs[layer] = Cost(
            parameters=parameters(model),
            megabytes=megabytes(model, source.dtype),
            milliseconds=time,
            speedup=full_time / time,
            milliseconds_error=error,
        )
    by_layer = {layer: costs[layer] for layer in layers}
    return Costs(costs[deepest], by_layer, work.measured)


def megabytes(module: nn.Module, dtype: torch.dtype) -> float:
    """Return how large a model's weights are in a checkpoint of this dtype."""
    return parameters(module) * dtype.itemsize / 1e6

"""What truncated models cost and score beside the full one: weights, operations and milliseconds, as a table too."""

import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from layerscope.core.errors import count, spans
from layerscope.core.stopwatch import Stopwatch, error_of_median, machine
from layerscope.models.capture import evaluating
from layerscope.models.encode import TextEncoder
from layerscope.models.forward import Inputs, forward
from layerscope.show.document import Document, Table, columns, row
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
FEWEST, MOST = 5, 30
"""Repeats of a measurement: as many as fit into this many seconds, between these."""
HEAL = "layerscope train {} --train DATA --out healed"
REBUILD = "Vectors of a truncated model are not comparable with those of the full model: rebuild your index."


@dataclass(frozen=True)
class Made:
    """A model that was written: its blocks, counted from 0, what holds them, its folder, and its largest difference."""

    kept: tuple[int, ...]
    depth: Depth
    folder: Path
    difference: float

    def dropped(self, depth: int) -> tuple[int, ...]:
        """Return the blocks of the full model that it lacks, counted from 1; none where it merely ends earlier."""
        if not gaps_in(self.kept):
            return ()
        return tuple(
            block for block in range(1, depth + 1) if block - 1 not in self.kept
        )


@dataclass(frozen=True)
class Truncated:
    """A truncated model with its figures, those of the full model beside them.

    `layer` is how many layers it has; `dropped` are the blocks it lacks, counted from 1, where it
    does not merely end earlier; `mix` names layers that it mixes, with their weights; `dim` is how
    many dimensions its vectors keep, None for all. `dtype` is that of its weights, `difference` the
    largest between its output and the full model's layer. `megabytes` are those of its weights on
    disk (of the full model: what they would be), `milliseconds` a sample's share of a forward of
    torch, `speedup` that of the full model over its own; `score` and `stderr` what `scored` says at
    that layer, None where there is none: the linear probe of a run, or accuracy or perplexity as
    `train` measured them, over `samples` of `data`.

    >>> from layerscope.truncation import truncate_layers
    >>> (made,) = truncate_layers("tiny-bert", [2], "shallow", progress=False)
    >>> made.layer, made.depth, made.parameters < made.full_parameters
    (2, 3, True)
    """

    model: str
    layer: int
    depth: int
    path: str
    format: str
    site: str
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
    score: float | None = None
    stderr: float | None = None
    full_score: float | None = None
    scored: str = "linear probe"
    samples: int | None = None
    data: str | None = None
    dropped: tuple[int, ...] = ()
    mix: str = ""
    dim: int | None = None

    @property
    def cut(self) -> str:
        """What was done to the full model, in words."""
        narrower = (
            "" if self.dim is None else f", the first {count(self.dim, 'dimension')}"
        )
        if self.dropped:
            return f"without {spans(self.dropped, 'block')} of {self.depth}{narrower}"
        if self.mix:
            return f"a mix of {self.mix} of {self.depth}{narrower}"
        return f"{spans(range(1, self.layer + 1), 'layer')} of {self.depth}{narrower}"

    @property
    def gives_vectors(self) -> bool:
        """Whether its output is compared with other vectors: not of a classifier, nor of one that writes text."""
        headed = "Classification" in self.auto or self.scored == "perplexity"
        return self.format == "sentence-transformers" or bool(self.mix) or not headed

    def shown(self, full: bool = False) -> str:
        """Return the score of this model, or of the full one, as it is shown."""
        value, error = (self.full_score, None) if full else (self.score, self.stderr)
        form = ",.1f" if self.scored == "perplexity" else ".1%"
        if value is None:
            return "–"
        return (
            format(value, form) if error is None else f"{value:{form}} ± {error:{form}}"
        )


def measure(
    source: Source, made: Sequence[Made], format: str, site: str
) -> list[Truncated]:
    """Return the figures of every depth that was written; their speeds are measured in turns with the full model's."""
    stack, work, depth = source.model.stack, workload(source), made[0].depth
    scores, about = source.scores(format)
    full = depth.build(source.module, range(stack.depth))
    models = [depth.build(source.module, entry.kept) for entry in made]
    times = np.median(work.rounds([full, *models]), axis=0).tolist()
    shared: dict[str, Any] = {
        "model": source.name,
        "depth": stack.depth,
        "format": format,
        "dim": source.dim,
        "mix": "" if source.mix is None else mix_in_words(source.mix),
        "site": site if stack.norm is not None else "raw",
        "dtype": "float32"
        if format == "onnx"
        else str(source.dtype).removeprefix("torch."),
        "full_parameters": parameters(full),
        "full_megabytes": megabytes(full, source.dtype),
        "full_milliseconds": times[0],
        "measured": work.measured,
        **about,
    }
    truncated = []
    for entry, model, time in zip(made, models, times[1:], strict=True):
        scored: dict[str, Any] = {}
        if not gaps_in(entry.kept) and len(entry.kept) in scores:
            score, stderr = scores[len(entry.kept)]
            full_score, _ = scores[stack.depth]
            scored = {"score": score, "stderr": stderr, "full_score": full_score}
        truncated.append(
            Truncated(
                layer=len(entry.kept),
                dropped=entry.dropped(stack.depth),
                path=str(entry.folder),
                auto=auto_class(model),
                difference=entry.difference,
                parameters=parameters(model),
                megabytes=_on_disk(entry.folder),
                milliseconds=time,
                speedup=times[0] / time,
                **scored,
                **shared,
            )
        )
    return truncated


def _on_disk(folder: Path) -> float:
    files = (*folder.glob(f"{FILE}*"), *folder.rglob("*.safetensors"))
    return sum(path.stat().st_size for path in files) / 1e6


def document(made: Sequence[Truncated]) -> Document:
    """Return truncated models of one model, the shallowest answering for what truncation gains."""
    first = made[0]
    titles = ["layers", "parameters", "MB", "ms", "faster"]
    legend = [f"ms: per sample, {first.measured}."]
    scored = any(entry.score is not None for entry in made)
    if scored:
        titles.append(first.scored)
        legend.append(
            f"{first.scored}: {first.samples or 0:,} samples of {first.data}."
        )
    rows = []
    for entry in made:
        figures = _figures(
            entry.parameters, entry.megabytes, entry.milliseconds, entry.speedup
        )
        scores = [entry.shown()] if scored else []
        rows.append(row(f"{entry.layer} of {entry.depth}", *figures, *scores))
    figures = _figures(
        first.full_parameters, first.full_megabytes, first.full_milliseconds, 1.0
    )
    scores = [first.shown(full=True)] if scored else []
    rows.append(row("full model", *figures, *scores, quiet=True))
    answer = (
        f"{first.model}, {first.cut}: {first.speedup:.2f}× as fast, "
        f"{first.megabytes / first.full_megabytes:.0%} of the size"
    )
    if first.score is not None:
        answer += (
            f"; {first.scored} {first.shown()}, full model {first.shown(full=True)}"
        )
    return Document(
        answer,
        parts=(Table("", columns(titles), tuple(rows), tuple(legend)),),
        notes=(REBUILD,) if first.gives_vectors else (),
        commands=(HEAL.format(shlex.quote(first.path)),) if first.dropped else (),
    )


def _figures(
    parameters: int, megabytes: float, milliseconds: float, speedup: float
) -> list[str]:
    return [
        f"{parameters:,}",
        f"{megabytes:,.1f}",
        f"{milliseconds:.2f}",
        f"{speedup:.2f}×",
    ]


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
        dtype, device = (
            str(self.source.dtype).removeprefix("torch."),
            self.source.model.device,
        )
        return f"medians over forwards of {self.text}, interleaved, in {dtype}, on {machine(device)}"

    def rounds(self, models: Sequence[nn.Module]) -> Any:
        """Return the milliseconds per sample of each of these models, which take turns, `[rounds, models]`."""
        entry, stopwatch = (
            self.source.model.stack.entry,
            Stopwatch(self.source.model.device),
        )
        runs = [
            partial(forward, model.get_submodule(entry), self.inputs)
            for model in models
        ]
        with evaluating(self.source.module):
            return 1e3 / self.samples * stopwatch.rounds(runs, FEWEST, MOST, SECONDS)


def workload(source: Source) -> Workload:
    """Return a batch of images, sounds, or texts as long as those of the source's data are on average.

    Where no data are known these are of 128 tokens; a model that takes no more has as many as it
    takes, by trial.
    """
    model, one = source.model, source.samples[0]
    encoder: Any = model.encoder
    alone = model.lens is not None and model.lens.alone
    size = 1 if alone or parameters(source.module) > LARGE else BATCH
    if not isinstance(encoder, TextEncoder):
        inputs = encoder.batch([one] * size).to(model.device)
        return Workload(source, inputs, size, f"{count(size, source.unit)} at once")
    length = min(source.tokens or TOKENS, encoder.max_length)
    text = " ".join([one] * length) if isinstance(one, str) else one.repeat(length)
    entry, inputs = source.module.get_submodule(model.stack.entry), None
    while inputs is None:
        inputs = (
            replace(encoder, max_length=length).batch([text] * size).to(model.device)
        )
        try:
            forward(entry, inputs)
        except Exception:
            if length < SHORTEST:
                raise
            length, inputs = length // 2, None
    mean = "" if source.tokens is None else ", the mean length of the data,"
    tokens = f"{inputs.named['input_ids'].shape[1]} tokens{mean}"
    return Workload(source, inputs, size, f"{count(size, 'text')} of {tokens} at once")


def sizes_by_depth(source: Source, layers: Sequence[int]) -> list[Cost]:
    """Return what is known of a model that ends at each of these layers, 1 … L, before it runs: no time."""
    depth = depth_of(source.model, source.samples)
    models = [depth.build(source.module, range(layer)) for layer in layers]
    unknown = math.nan
    return [
        Cost(
            parameters(model), megabytes(model, source.dtype), unknown, unknown, unknown
        )
        for model in models
    ]


def costs_by_depth(source: Source, layers: Sequence[int]) -> Costs:
    """Return what a model costs that ends at each of these layers, 1 … L, speeds measured in turns with its own."""
    depth, deepest = depth_of(source.model, source.samples), source.model.stack.depth
    ends = [*dict.fromkeys((*layers, deepest))]
    models = [depth.build(source.module, range(layer)) for layer in ends]
    work = workload(source)
    rounds = work.rounds(models)
    times, errors = np.median(rounds, axis=0).tolist(), error_of_median(rounds).tolist()
    full_time = times[ends.index(deepest)]
    costs = {}
    for layer, model, time, error in zip(ends, models, times, errors, strict=True):
        size = megabytes(model, source.dtype)
        costs[layer] = Cost(parameters(model), size, time, full_time / time, error)
    return Costs(
        costs[deepest], {layer: costs[layer] for layer in layers}, work.measured
    )


def parameters(module: nn.Module) -> int:
    """Return how many weights a model has, tied ones once."""
    return sum(p.numel() for p in module.parameters())


def megabytes(module: nn.Module, dtype: torch.dtype) -> float:
    """Return how large a model's weights are in a checkpoint of this dtype."""
    return parameters(module) * dtype.itemsize / 1e6

"""What is found in a model, and what a run over data would take."""

from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import torch

from layerscope.core.errors import LayerscopeError, choices
from layerscope.core.stopwatch import Stopwatch
from layerscope.inputs import Waveform
from layerscope.models import LayeredModel, Loaded, Override, find_layers, load
from layerscope.models.capture import evaluating
from layerscope.models.checks import clear_inputs
from layerscope.models.encode import modalities_of, modality_of, vocabulary
from layerscope.models.forward import FAILURES
from layerscope.models.options import InspectOptions
from layerscope.models.probe import probe_sample
from layerscope.models.stack import OtherTower, SeveralParts
from layerscope.models.sublayers.find import find_sublayers
from layerscope.models.sublayers.watch import Sublayers
from layerscope.show.document import Document, Facts
from layerscope.show.notebook import Shown

TEXTS = ["A layer hands its state to the next one, and the last one speaks.", "Short."]


@dataclass(frozen=True)
class Inspection(Shown):
    """What the probe found in one part of a model."""

    model: str
    kind: str
    modality: str
    part: str
    parts: tuple[str, ...]
    depth: int
    width: int
    blocks: tuple[str, ...]
    found_by: str
    norm: str | None
    head: str | None
    pooling: tuple[str, ...]
    max_length: int | None
    causal: bool
    parameters: int
    dtype: str
    bytes_per_sample: int
    seconds_per_sample: float
    notes: tuple[str, ...]
    sublayers: tuple[str, ...] = ()
    """Sites inside the blocks that `profile` can measure."""

    def document(self) -> Document:
        """Return what was found, how, and how to say otherwise."""
        shared = (
            f", one block run {self.depth} times" if len(set(self.blocks)) == 1 < self.depth else ""
        )
        unit = "seconds" if self.modality == "audio" else "tokens"
        several = len(self.parts) > 1
        cost = f"{self.bytes_per_sample / 1e3:.0f} kB on disk and about {self.seconds_per_sample * 1e3:.1f} ms"
        entries = (
            ("model", f"{self.model} ({self.kind}, {self.parameters:,} parameters, {self.dtype})"),
            (
                "reads",
                self.modality + (f", {self.max_length} {unit} at most" if self.max_length else ""),
            ),
            ("part", self.part + (f" of {', '.join(self.parts)}" if several else "")),
            ("layers", f"0 (what the first block reads) to {self.depth}, {self.width} wide"),
            ("blocks", f"{_rows(self.blocks)}{shared}, found by {self.found_by}"),
            ("sub-layers", ", ".join(self.sublayers) or "none found in the blocks"),
            ("final norm", self.norm or "none: states are used as the blocks output them"),
            ("head", self.head or "none for this part"),
            ("attention", "causal: no token sees later ones" if self.causal else "not causal"),
            ("pooling", f"auto is {', '.join(self.pooling)}"),
            ("a run takes", f"{cost} for a short sample"),
            ("override", "part, blocks and norm: paths in the model, or none for norm"),
            *(("note", note) for note in self.notes),
        )
        of = f"{self.model}, {self.part}" if several else self.model
        answer = f"{self.depth} layers of {of}, {self.width} wide, found by {self.found_by}"
        return Document(answer, parts=(Facts(entries),))


def _rows(blocks: tuple[str, ...]) -> str:
    """Return where blocks are: the first and the last, of up to three lists in series those of each."""
    lists = [tuple(paths) for _, paths in groupby(blocks, key=lambda path: path.rpartition(".")[0])]
    rows = lists if len(lists) <= 3 else [blocks]
    return ", ".join(f"{row[0]} … {row[-1]}" if len(row) > 1 else row[0] for row in rows)


def inspect_model(options: InspectOptions) -> list[Inspection]:
    """Return what is found in each stack of blocks of a model."""
    loaded = load(options.model, options.load, options.processor)
    override = options.override
    if options.data is not None:
        return _look(loaded, "tensor", list(options.data[:2]), override)
    inspections: list[Inspection] = []
    errors: list[LayerscopeError] = []
    for modality in modalities_of(loaded.module):  # a tower reads one of several
        try:
            inspections += _look(loaded, *made_up_samples(loaded, modality), override)
        except LayerscopeError as error:
            errors.append(error)
    if inspections:
        return inspections
    towers = [error.tower for error in errors if isinstance(error, OtherTower)]
    if len(towers) == len(errors) > 1:
        there = choices(str(override.part), towers, "this model has")
        raise LayerscopeError(f"part {override.part!r} does not exist{there}")
    raise errors[0]


def _look(
    loaded: Loaded, modality: str, samples: list[Any], override: Override
) -> list[Inspection]:
    try:
        models = [find_layers(loaded, modality, samples, override)]
    except SeveralParts as several:
        models = [
            find_layers(loaded, modality, samples, replace(override, part=part))
            for part in several.parts
        ]
    return [_inspection(model, modality, samples) for model in models]


def made_up_samples(loaded: Loaded, modality: str | None = None) -> tuple[str, list[Any]]:
    """Return what a model reads, by default its main input, and two samples of it: ids where no tokenizer makes any."""
    modality = modality or modality_of(loaded.module)
    draw = torch.Generator().manual_seed(0)
    if modality == "tensor":
        weighted = (
            child
            for child in loaded.module.modules()
            if next(child.parameters(recurse=False), None) is not None
        )
        if not isinstance(
            first := next(weighted, None), torch.nn.Linear
        ):  # as of an MLP, which reads rows of its width
            raise LayerscopeError(
                "a plain module is probed with data: give an array of its inputs as `data`"
            )
        return modality, [*torch.randn(2, first.in_features, generator=draw)]
    if modality == "text":
        tokenizer = loaded.processor_for("text")
        with clear_inputs(tokenizer):  # one of an empty vocabulary makes no tokens
            if tokenizer is not None and tokenizer(TEXTS[0])["input_ids"]:
                return modality, TEXTS
        rows = [torch.randint(vocabulary(loaded.module), (n,), generator=draw) for n in (24, 8)]
        end = getattr(getattr(loaded.module, "config", None), "eos_token_id", None)
        if isinstance(end, int):  # some classifiers read the token that ends a text
            rows = [torch.cat([row[row != end], torch.tensor([end])]) for row in rows]
        return "tensor", rows
    if modality == "image":
        from PIL import Image

        return modality, [
            Image.effect_noise((64, 64), 50).convert("RGB"),
            Image.new("RGB", (64, 64), "gray"),
        ]
    noise = (torch.randn(16000, generator=draw) * 0.1).numpy()
    return modality, [Waveform(noise, 16000), Waveform(noise[:8000], 16000)]


def _inspection(model: LayeredModel, modality: str, samples: list[Any]) -> Inspection:
    with evaluating(model.module):
        inside = Sublayers()
        with suppress(
            LayerscopeError, *FAILURES
        ):  # blocks that cannot be watched show nothing inside
            inputs = model.encoder.batch([probe_sample(model.encoder, samples)]).to(model.device)
            inside = find_sublayers(model.module, model.stack, inputs)
        inputs = model.encoder.batch(samples).to(model.device)
        (seconds,) = Stopwatch(model.device).medians(
            [lambda: model.run(inputs, lambda *_: None)], 1
        )
    scope = (
        "every token" if model.lens is not None and model.lens.kind == "tokens" else "every sample"
    )
    stack, parameter = model.stack, next(model.module.parameters(), torch.empty(0))
    shared = {
        name: getattr(stack, name)
        for name in ("part", "depth", "width", "blocks", "found_by", "norm")
    }
    shared |= {name: getattr(model, name) for name in ("parts", "pooling", "max_length", "causal")}
    return Inspection(
        model=model.loaded.name,
        kind=type(model.module).__name__,
        modality=modality,
        head=None if model.lens is None else f"{model.lens.classes:,} classes for {scope}",
        parameters=sum(p.numel() for p in model.module.parameters()),
        dtype=str(parameter.dtype).removeprefix("torch."),
        bytes_per_sample=4
        * (stack.depth + 1)
        * stack.width
        * len(model.sites)
        * len(model.pooling),
        seconds_per_sample=float(seconds) / len(samples),
        notes=(*model.notes, *(inside.notes if inside.taps else ())),
        sublayers=tuple(inside.sites),
        **shared,
    )

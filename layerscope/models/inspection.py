"""What is found in a model, and what a run over data would take."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch

from layerscope.core.errors import LayerscopeError
from layerscope.core.options import Asked
from layerscope.core.stopwatch import Stopwatch
from layerscope.inputs import Waveform
from layerscope.models import LayeredModel, Loaded, LoadOptions, Override, find_layers, load
from layerscope.models.capture import evaluating
from layerscope.models.checks import clear_inputs
from layerscope.models.encode import modalities_of, modality_of, vocabulary
from layerscope.models.forward import FAILURES
from layerscope.models.probe import probe_sample
from layerscope.models.stack import SeveralParts
from layerscope.models.sublayers.find import find_sublayers
from layerscope.models.sublayers.taps import Sublayers
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
        unique = len(set(self.blocks))
        shared = f", one block run {self.depth} times" if unique == 1 and self.depth > 1 else ""
        unit = "seconds" if self.modality == "audio" else "tokens"
        entries = (
            ("model", f"{self.model} ({self.kind}, {self.parameters:,} parameters, {self.dtype})"),
            ("reads", self.modality + (f", {self.max_length} {unit} at most" if self.max_length else "")),
            ("part", self.part + (f" of {', '.join(self.parts)}" if len(self.parts) > 1 else "")),
            ("layers", f"0 (what the first block reads) to {self.depth}, {self.width} wide"),
            ("blocks", f"{self.blocks[0]} … {self.blocks[-1]}{shared}, found by {self.found_by}"),
            ("sub-layers", ", ".join(self.sublayers) or "none found in the blocks"),
            ("final norm", self.norm or "none: states are taken as the blocks give them"),
            ("head", self.head or "none that reads this part"),
            ("attention", "causal: no token sees the next" if self.causal else "not causal"),
            ("pooling", f"auto is {', '.join(self.pooling)}"),
            (
                "a run takes",
                f"{self.bytes_per_sample / 1e3:.0f} kB on disk and about {self.seconds_per_sample * 1e3:.1f} ms for a "
                "short sample",
            ),
            ("override", "--part, --blocks PATH, --norm PATH (or none)"),
        )
        of = f" of {self.model}" if len(self.parts) < 2 else f" of {self.model}, {self.part}"
        answer = f"{self.depth} layers{of}, {self.width} wide, found by {self.found_by}"
        return Document(answer, parts=(Facts((*entries, *(("note", note) for note in self.notes))),))


def inspect_model(asked: Asked) -> list[Inspection]:
    """Do what `inspect` is asked for."""
    loaded = load(asked.model, asked.of(LoadOptions), asked.processor)
    override = asked.of(Override)
    if asked.data is not None:
        return _look(loaded, "tensor", list(asked.data[:2]), override)
    found: list[Inspection] = []
    errors: list[LayerscopeError] = []
    for modality in modalities_of(loaded.module):  # a tower reads one of several
        try:
            found += _look(loaded, *made_up_samples(loaded, modality), override)
        except LayerscopeError as error:
            errors.append(error)
    if not found:
        raise errors[0]
    return found


def _look(loaded: Loaded, modality: str, samples: list[Any], override: Override) -> list[Inspection]:
    def find(part: str | None) -> LayeredModel:
        asked = replace(override, part=part)
        return find_layers(loaded, modality, samples, asked, max_length=None, prompt="")

    try:
        found = [find(override.part)]
    except SeveralParts as several:
        found = [find(name) for name in several.parts]
    return [_inspection(layered, modality, samples) for layered in found]


def made_up_samples(loaded: Loaded, modality: str | None = None) -> tuple[str, list[Any]]:
    """Return what a model reads, by default its main input, and two samples of it: ids where no tokenizer makes any."""
    modality = modality or modality_of(loaded.module)
    if modality == "text" and not _makes_tokens(loaded.processor_for("text")):
        return "tensor", _made_up_ids(loaded.module)
    if modality == "tensor":
        raise LayerscopeError("a plain module is probed with data: give an array of its inputs as data=")
    if modality == "text":
        return modality, TEXTS
    if modality == "image":
        from PIL import Image

        return modality, [Image.effect_noise((64, 64), 50).convert("RGB"), Image.new("RGB", (64, 64), "gray")]
    noise = (torch.randn(16000, generator=torch.Generator().manual_seed(0)) * 0.1).numpy()
    return modality, [Waveform(noise, 16000), Waveform(noise[:8000], 16000)]


def _makes_tokens(tokenizer: Any) -> bool:
    """Return whether a tokenizer gives tokens at all: one of an empty vocabulary gives none."""
    if tokenizer is None:
        return False
    with clear_inputs(tokenizer):
        return bool(tokenizer(TEXTS[0])["input_ids"])


def _made_up_ids(module: torch.nn.Module) -> list[Any]:
    """Return two rows of ids, each ended as the config says, as some classifiers read the token that ends a text."""
    draw = torch.Generator().manual_seed(0)
    end = getattr(getattr(module, "config", None), "eos_token_id", None)
    rows = [torch.randint(vocabulary(module), (n,), generator=draw) for n in (24, 8)]
    if isinstance(end, int):
        rows = [torch.cat([row[row != end], torch.tensor([end])]) for row in rows]
    return rows


def _inside(model: LayeredModel, samples: list[Any]) -> Sublayers:
    """Return what a run with sub-layers would measure; blocks that cannot be watched show nothing inside."""
    inputs = model.encoder.batch([probe_sample(model.encoder, samples)]).to(model.device)
    try:
        return find_sublayers(model.module, model.stack, inputs)
    except (LayerscopeError, *FAILURES):
        return Sublayers()


def _seconds(model: LayeredModel, samples: list[Any]) -> float:
    """Return the seconds that a sample takes in a pass over two of them, after a first one."""
    inputs = model.encoder.batch(samples).to(model.device)
    (seconds,) = Stopwatch(model.device).medians([lambda: model.run(inputs, lambda *_: None)], 1)
    return float(seconds) / len(samples)


def _inspection(model: LayeredModel, modality: str, samples: list[Any]) -> Inspection:
    with evaluating(model.module):
        inside = _inside(model, samples)
        seconds = _seconds(model, samples)
    head = None
    if model.lens is not None:
        scope = "every token" if model.lens.kind == "tokens" else "every sample"
        head = f"{model.lens.classes:,} classes for {scope}"
    parameter = next(model.module.parameters(), torch.empty(0))
    return Inspection(
        model=model.loaded.name,
        kind=type(model.module).__name__,
        modality=modality,
        part=model.stack.part,
        parts=model.parts,
        depth=model.stack.depth,
        width=model.stack.width,
        blocks=model.stack.blocks,
        found_by=model.stack.found_by,
        norm=model.stack.norm,
        head=head,
        pooling=model.pooling,
        max_length=model.max_length,
        causal=model.causal,
        parameters=sum(p.numel() for p in model.module.parameters()),
        dtype=str(parameter.dtype).removeprefix("torch."),
        bytes_per_sample=4 * (model.stack.depth + 1) * model.stack.width * len(model.sites) * len(model.pooling),
        seconds_per_sample=seconds,
        notes=(*model.notes, *(inside.notes if inside.taps else ())),
        sublayers=tuple(inside.sites),
    )

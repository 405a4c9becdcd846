"""What is found in a model, and what a run over data would take."""

from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import nn

from layerscope.core import LayerscopeError, Stopwatch
from layerscope.inputs import Waveform
from layerscope.models import LayeredModel, Loaded, Override, find_layers, load
from layerscope.models.capture import evaluating
from layerscope.models.checks import clear_inputs
from layerscope.models.forward import FAILURES, setting
from layerscope.models.modality import modalities_of, modality_of, vocabulary
from layerscope.models.options import InspectOptions
from layerscope.models.probe import probe_sample
from layerscope.models.stack import SeveralParts
from layerscope.models.sublayers.find import find_sublayers
from layerscope.models.sublayers.watch import Sublayers
from layerscope.models.weights import dtype_of, parameters
from layerscope.show import Document, Facts, Shown

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
    sublayers: tuple[str, ...]
    """Sites inside the blocks that `profile` can measure."""

    def document(self) -> Document:
        """Return what was found, how, and how to say otherwise."""
        of = self.model
        if len(self.parts) > 1:
            of = f"{self.model}, {self.part} of {', '.join(self.parts)}"
        cost = f"{self.bytes_per_sample / 1e3:.0f} kB on disk and about {self.seconds_per_sample * 1e3:.1f} ms"
        entries = (
            ("model", f"{self.kind}, {self.parameters:,} parameters, {self.dtype}"),
            (
                "blocks",
                f"{self.blocks[0]} … {self.blocks[-1]}, found by {self.found_by}",
            ),
            ("sub-layers", ", ".join(self.sublayers) or "none found in the blocks"),
            (
                "final norm",
                self.norm or "none: states are used as the blocks output them",
            ),
            ("head", self.head or "none for this part"),
            ("pooling", f"auto is {', '.join(self.pooling)}"),
            ("override", "part, blocks and norm: paths in the model, or none for norm"),
            ("a run takes", f"{cost} for a short sample"),
            *(("note", note) for note in self.notes),
        )
        answer = (
            f"{self.depth} layers of {of}, {self.width} wide, found by {self.found_by}"
        )
        return Document(answer, parts=(Facts(entries),))


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
    raise errors[0]


def _look(
    loaded: Loaded, modality: str, samples: list[Any], override: Override
) -> list[Inspection]:
    """Return what is found in each part of a model that reads these samples."""
    try:
        models = [find_layers(loaded, modality, samples, override)]
    except SeveralParts as several:
        models = []
        for part in several.parts:
            part_override = replace(override, part=part)
            models.append(find_layers(loaded, modality, samples, part_override))
    return [_inspection(model, modality, samples) for model in models]


def made_up_samples(
    loaded: Loaded, modality: str | None = None
) -> tuple[str, list[Any]]:
    """Return what a model reads, by default its main input, and two samples of it: ids where no tokenizer makes any."""
    modality = modality or modality_of(loaded.module)
    draw = torch.Generator().manual_seed(0)
    if modality == "tensor":
        return modality, _made_up_rows(loaded.module, draw)
    if modality == "text":
        tokenizer = loaded.processor_for("text")
        with clear_inputs(tokenizer):  # one of an empty vocabulary makes no tokens
            if tokenizer is not None and tokenizer(TEXTS[0])["input_ids"]:
                return modality, TEXTS
        return "tensor", _made_up_ids(loaded.module, draw)
    if modality == "image":
        from PIL import Image

        noise = Image.effect_noise((64, 64), 50).convert("RGB")
        return modality, [noise, Image.new("RGB", (64, 64), "gray")]
    sound = (torch.randn(16000, generator=draw) * 0.1).numpy()
    return modality, [Waveform(sound, 16000), Waveform(sound[:8000], 16000)]


def _made_up_rows(module: nn.Module, draw: torch.Generator) -> list[Any]:
    """Return rows of the width that a plain module's first weights read, where they are those of an MLP."""
    for child in module.modules():
        if isinstance(child, nn.Linear):
            return [*torch.randn(2, child.in_features, generator=draw)]
        if [*child.parameters(recurse=False)]:
            break
    raise LayerscopeError(
        "a plain module is probed with data: give an array of its inputs as `data`"
    )


def _made_up_ids(module: nn.Module, draw: torch.Generator) -> list[Any]:
    """Return two rows of random token ids, of different lengths."""
    end = setting(module, "eos_token_id")
    rows = []
    for length in (24, 8):
        row = torch.randint(vocabulary(module), (length,), generator=draw)
        if isinstance(end, int):  # some classifiers read the token that ends a text
            row = torch.cat([row[row != end], torch.tensor([end])])
        rows.append(row)
    return rows


def _inspection(model: LayeredModel, modality: str, samples: list[Any]) -> Inspection:
    """Return what was found in one part, and what a sample takes there."""
    stack = model.stack
    module = model.module
    with evaluating(module):
        inside = Sublayers()
        # blocks that cannot be watched show nothing inside
        with suppress(*FAILURES):
            sample = probe_sample(model.encoder, samples)
            inputs = model.encoder.batch([sample]).to(model.device)
            inside = find_sublayers(module, stack, inputs)
        inputs = model.encoder.batch(samples).to(model.device)
        run = partial(model.run, inputs, lambda *_: None)
        watch = Stopwatch(model.device)
        watch.seconds(run)  # the first allocates, compiles and reads
        seconds = watch.seconds(run)
    head = None
    if model.lens is not None:
        scope = "every token" if model.lens.kind == "tokens" else "every sample"
        head = f"{model.lens.classes:,} classes for {scope}"
    if model.scorer is not None:
        head = "one score for every sample"
    states = (stack.depth + 1) * len(model.sites) * len(model.pooling)
    notes = model.notes
    if inside.taps:
        notes += inside.notes
    return Inspection(
        model=model.name,
        kind=type(module).__name__,
        modality=modality,
        part=stack.part,
        parts=model.parts,
        depth=stack.depth,
        width=stack.width,
        blocks=stack.blocks,
        found_by=stack.found_by,
        norm=stack.norm,
        head=head,
        pooling=model.pooling,
        max_length=model.max_length,
        causal=model.causal,
        parameters=parameters(module),
        dtype=dtype_of(module),
        bytes_per_sample=4 * states * stack.width,
        seconds_per_sample=seconds / len(samples),
        notes=notes,
        sublayers=tuple(inside.sites),
    )

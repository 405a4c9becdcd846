"""What a truncated model costs beside the full one: parameters, operations, and milliseconds on this machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from layerscope.core.stopwatch import Stopwatch, machine
from layerscope.core.words import count
from layerscope.models.capture import evaluating
from layerscope.models.encode import TextEncoder
from layerscope.models.forward import Inputs, forward
from layerscope.truncation.source import Source

TOKENS = 128
SHORTEST = 8
BATCH = 8
SECONDS = 8.0
FEWEST, MOST = 5, 30
"""Repeats of a measurement: as many as fit into this many seconds, between these."""


@dataclass(frozen=True)
class Workload:
    """The batch that every speed of a source is measured on, and what it is in words."""

    source: Source
    inputs: Inputs
    samples: int
    text: str

    def measured(self, engine: str | None = None) -> str:
        """Return in words what milliseconds are of, and what they were measured on."""
        engine = engine or str(self.source.dtype).removeprefix("torch.")
        on = machine(self.source.model.device)
        return f"medians over forwards of {self.text}, in turns, in {engine}, on {on}"

    def milliseconds(self, models: Sequence[nn.Module]) -> list[float]:
        """Return the milliseconds per sample of each of these models, medians of runs that take turns."""
        with evaluating(self.source.module):
            return self.milliseconds_of([partial(forward, self._called(model), self.inputs) for model in models])

    def milliseconds_of(self, runs: Sequence[Callable[[], Any]]) -> list[float]:
        """Return the same of runs of the batch."""
        times = Stopwatch(self.source.model.device).medians(runs, FEWEST, MOST, SECONDS)
        return [float(1e3 * seconds / self.samples) for seconds in times]

    @torch.inference_mode()
    def operations(self, model: nn.Module) -> int:
        """Return the multiplications and additions of one forward, in matrix products, convolutions and attention."""
        called = self._called(model)
        # the fused attention of a CPU is not counted; as plain products it is
        with evaluating(called), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
            forward(called, self.inputs)
        return int(counter.get_total_flops())

    def _called(self, model: nn.Module) -> nn.Module:
        """Return the model, or the one of its towers that reads these inputs."""
        return model.get_submodule(self.source.model.stack.entry)


def workload(source: Source) -> Workload:
    """Return a batch of a fixed size: texts all of one length, images, or sounds."""
    encoder, lens = source.model.encoder, source.model.lens
    size = 1 if lens is not None and lens.alone else BATCH
    if isinstance(encoder, TextEncoder):
        return _texts(source, encoder, size)
    inputs = encoder.batch([source.samples[0]] * size).to(source.model.device)
    return Workload(source, inputs, size, f"{count(size, source.unit)} at once")


def _texts(source: Source, encoder: TextEncoder, size: int) -> Workload:
    """Texts of 128 tokens, or of as many as the model takes; where only its code knows, shorter ones are tried."""
    length = min(TOKENS, encoder.max_length)
    one = source.samples[0]
    text = " ".join([one] * length) if isinstance(one, str) else one.repeat(length)
    while True:
        inputs = replace(encoder, max_length=length).batch([text] * size).to(source.model.device)
        try:
            forward(source.module.get_submodule(source.model.stack.entry), inputs)
        except Exception:
            if length < SHORTEST:
                raise
            length //= 2
        else:
            tokens = inputs.named["input_ids"].shape[1]
            return Workload(source, inputs, size, f"{count(size, 'text')} of {tokens} tokens at once")


def parameters(module: nn.Module) -> int:
    """Return how many weights a model has, tied ones once."""
    return sum(p.numel() for p in module.parameters())


def megabytes(module: nn.Module, dtype: torch.dtype) -> float:
    """Return how large a model's weights are in a checkpoint of this dtype."""
    return parameters(module) * dtype.itemsize / 1e6

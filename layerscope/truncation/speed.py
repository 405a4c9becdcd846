"""What a truncated model costs beside the full one: parameters, operations, and milliseconds on this machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from layerscope.core.stopwatch import Stopwatch
from layerscope.inputs.corpus import count
from layerscope.models.capture import evaluating
from layerscope.models.encode import TextEncoder
from layerscope.models.forward import Inputs, forward
from layerscope.truncation.source import Source

TOKENS = 128
SHORTEST = 8
BATCH = 8
SECONDS = 8.0
FEWEST, MOST = 5, 30
"""Repeats of a measurement: as many as fit into so many seconds, between these."""


@dataclass(frozen=True)
class Workload:
    """The batch that every speed is measured on, and what it is in words."""

    inputs: Inputs
    samples: int
    told: str


def workload(source: Source) -> Workload:
    """Return a batch of a fixed size: texts all of one length, images, or sounds."""
    encoder, lens = source.model.encoder, source.model.lens
    size = 1 if lens is not None and lens.alone else BATCH
    if isinstance(encoder, TextEncoder):
        return _texts(source, encoder, size)
    inputs = encoder.batch([source.samples[0]] * size).to(source.model.device)
    return Workload(inputs, size, f"{count(size, source.unit)} at once")


def _texts(source: Source, encoder: TextEncoder, size: int) -> Workload:
    """Texts of 128 tokens, or of as many as the model takes; where only its code knows, shorter ones are tried."""
    length = min(TOKENS, encoder.max_length)
    one = source.samples[0]
    text = " ".join([one] * length) if isinstance(one, str) else one.repeat(length)
    while True:
        inputs = replace(encoder, max_length=length).batch([text] * size).to(source.model.device)
        tokens = inputs.named["input_ids"].shape[1]
        work = Workload(inputs, size, f"{count(size, 'text')} of {tokens} tokens at once")
        try:
            forward(source.module.get_submodule(source.model.stack.entry), inputs)
        except Exception:
            if length < SHORTEST:
                raise
            length //= 2
        else:
            return work


def parameters(module: nn.Module) -> int:
    """Return how many weights a model has, tied ones once."""
    return sum(p.numel() for p in module.parameters())


@torch.inference_mode()
def operations(module: nn.Module, work: Workload) -> int:
    """Return the multiplications and additions of one forward, in matrix products, convolutions and attention."""
    # the fused attention of a CPU is not counted; as plain products it is
    with evaluating(module), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        forward(module, work.inputs)
    return int(counter.get_total_flops())


def milliseconds(runs: Sequence[Callable[[], Any]], samples: int, device: torch.device) -> list[float]:
    """Return the milliseconds per sample of each of these runs, medians of runs that take turns."""
    times = Stopwatch(device).medians(runs, FEWEST, MOST, SECONDS)
    return [float(1e3 * seconds / samples) for seconds in times]


def plain_run(module: nn.Module, work: Workload) -> Callable[[], Any]:
    """Return a call that runs a model once on the workload, as anyone would run it."""
    return lambda: forward(module, work.inputs)

"""What a truncated model costs beside the full one: parameters, operations, and milliseconds on this machine."""

from __future__ import annotations

import platform
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

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
    """Return the milliseconds a sample of each of these runs, medians.

    They take turns within every repeat, so that a busy machine slows all of them.
    """

    def once(run: Callable[[], Any]) -> float:
        start = time.perf_counter()
        run()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter() - start

    for run in runs:
        once(run)  # the first allocates, compiles and reads
    round_trip = sum(once(run) for run in runs)
    repeats = min(MOST, max(FEWEST, int(SECONDS / max(round_trip, 1e-9))))
    times = [[once(run) for run in runs] for _ in range(repeats)]
    return [statistics.median(column) * 1e3 / samples for column in zip(*times, strict=True)]


def plain_run(module: nn.Module, work: Workload) -> Callable[[], Any]:
    """Return a call that runs a model once on the workload, as anyone would run it."""
    return lambda: forward(module, work.inputs)


def machine(device: torch.device) -> str:
    """Return in words what the speed was measured on."""
    if device.type == "cuda":
        return f"{torch.cuda.get_device_name(device)}, torch {torch.__version__}"
    threads = torch.get_num_threads()
    return f"{_processor()}, {threads} {'thread' if threads == 1 else 'threads'}, torch {torch.__version__}"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, "") or platform.processor() or platform.machine()

"""Memory and time of the aligned loss, forward and backward, against summing per-layer losses and a backward per exit.

    python benchmarks/aligned_loss.py [--exits 12] [--tokens 2048] [--width 256] [--classes 32000]
    [--repeats 5]

The states are leaves and random; each way runs in a process of its own, its peak memory is what its
peak grows by, on a GPU (--device cuda) what torch says was allocated. All ways give the same
gradients (an error where they differ). Bars: peak at most 1/20 of the sum's and 1/5 of the backward
per exit's, time not above either.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from layerscope.training import aligned_loss, exit_weights

Way = Callable[[Sequence[Tensor], Tensor, nn.Linear], None]


def chunked(states: Sequence[Tensor], labels: Tensor, head: nn.Linear) -> None:
    """All exits in one call."""
    aligned_loss(states, labels, head).backward()


def summed(states: Sequence[Tensor], labels: Tensor, head: nn.Linear) -> None:
    """A loss a layer, one backward over their sum."""
    weights = exit_weights(range(1, len(states) + 1))
    losses = [
        nn.functional.cross_entropy(head(state).float(), labels) for state in states
    ]
    sum(weight * loss for weight, loss in zip(weights, losses, strict=True)).backward()


def one_by_one(states: Sequence[Tensor], labels: Tensor, head: nn.Linear) -> None:
    """A loss and a backward a layer."""
    for weight, state in zip(
        exit_weights(range(1, len(states) + 1)), states, strict=True
    ):
        (weight * nn.functional.cross_entropy(head(state).float(), labels)).backward()


WAYS: dict[str, Way] = {
    "aligned_loss": chunked,
    "sum of losses": summed,
    "backward per exit": one_by_one,
}


def measure(way: Way, given: argparse.Namespace) -> dict[str, float]:
    """Return the peak in MB of a first call and the median seconds of those after it; keep the gradients."""
    torch.manual_seed(0)
    kind = {"device": given.device, "dtype": getattr(torch, given.dtype)}
    head = nn.Linear(given.width, given.classes, bias=False, **kind)
    states = [
        torch.randn(given.tokens, given.width, **kind).requires_grad_()
        for _ in range(given.exits)
    ]
    labels = torch.randint(0, given.classes, (given.tokens,), device=given.device)
    on_gpu = given.device.startswith("cuda")

    def peak() -> float:
        return torch.cuda.max_memory_allocated() / 1e6 if on_gpu else _resident()

    def once() -> float:
        head.weight.grad = None
        for state in states:
            state.grad = None
        start = time.perf_counter()
        way(states, labels, head)
        if on_gpu:
            torch.cuda.synchronize()
        return time.perf_counter() - start

    nn.functional.linear(
        states[0][:8], head.weight
    ).sum().backward()  # libraries load before the peak is read
    before = peak()
    once()
    grown = max(peak() - before, 1e-3)  # what is small may fit into what was free
    found = {
        "megabytes": grown,
        "seconds": statistics.median(once() for _ in range(given.repeats)),
    }
    if given.gradients:
        torch.save(
            [head.weight.grad, *(state.grad for state in states)], given.gradients
        )
    return found


def check_equal(files: Sequence[Path], dtype: torch.dtype) -> None:
    """Raise unless all ways left the same gradients, to a few roundings of the largest one."""
    first, *others = (torch.load(file, map_location="cpu") for file in files)
    # sums over tokens and classes, in another order
    allowed = max(1e-5, 4 * torch.finfo(dtype).eps)
    for other in others:
        worst = max(
            float((a - b).abs().max() / a.abs().max())
            for a, b in zip(first, other, strict=True)
        )
        if not worst < allowed:
            raise SystemExit(f"the gradients of two ways differ by {worst:.1e}")


def _resident() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def main() -> int:
    """Run the benchmark; exit status 1 where a bar is not met."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, default in (
        ("exits", 12),
        ("tokens", 2048),
        ("width", 256),
        ("classes", 32_000),
        ("repeats", 5),
    ):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    parser.add_argument("--gradients", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.way:
        print(json.dumps(measure(WAYS[given.way], given)))
        return 0
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        kept = {name: Path(folder) / str(i) for i, name in enumerate(WAYS)}
        for name, file in kept.items():
            words = [
                sys.executable,
                __file__,
                *sys.argv[1:],
                "--way",
                name,
                "--gradients",
                str(file),
            ]
            found[name] = json.loads(
                subprocess.run(
                    words, stdout=subprocess.PIPE, check=True, text=True
                ).stdout
            )
            print(
                f"{name}: {found[name]['megabytes']:,.0f} MB, {found[name]['seconds']:.2f} s",
                flush=True,
            )
        check_equal(list(kept.values()), getattr(torch, given.dtype))
    own, plain, each = found.values()
    print(
        f"peak 1/{plain['megabytes'] / own['megabytes']:.1f} of the sum (bar 1/20), "
        f"1/{each['megabytes'] / own['megabytes']:.1f} of a backward per exit (bar 1/5); time "
        f"{own['seconds'] / plain['seconds']:.2f} x and {own['seconds'] / each['seconds']:.2f} x (bar 1)"
    )
    met = (
        own["megabytes"] * 20 <= plain["megabytes"]
        and own["megabytes"] * 5 <= each["megabytes"]
    )
    return 0 if met and own["seconds"] <= min(plain["seconds"], each["seconds"]) else 1


if __name__ == "__main__":
    raise SystemExit(main())

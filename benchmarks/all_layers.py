"""What all layers of MiniLM-L6 on five tasks cost over its last layer alone, and over one run per layer.

    python benchmarks/all_layers.py [--data ../shared/data] [--samples 2000] [--no-judging]

The texts of Banking77, TREC, SST-2 (classification), STS-B and StackOverflow titles (clustering),
2,000 seeded rows of each file, go through the model in groups of 512: once for all layers (pooled,
checked and written to disk, as `evaluate` does), once for the last layer alone (a bare forward of
the same batches and its pooling), in turns; both give the same states (an error where they differ
by more than 1e-5 of the largest). Bar: 1.05 x. The way of one run per layer is measured beside it,
and compared, on every fifth group. Then `evaluate` judges all layers on the five tasks, and its
whole time on the wall is printed with the scores.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

BAR = 1.05
GROUP = 512
TASKS = {
    "banking77": "classification", "trec": "classification", "sst2": "classification", "stsbenchmark": "sts",
    "stackoverflow_titles/all.csv": "clustering",
}  # fmt: skip


def texts_of(task: Any) -> list[str]:
    """Return every text of a task, in its order."""
    columns = ("text", "sentences", "sentence1", "sentence2")
    return [
        str(text)
        for split in task.dataset.values()
        for name in columns
        if name in split.features
        for text in split[name]
    ]


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    """Return how long a call takes, and what it returns."""
    start = time.perf_counter()
    found = call()
    return time.perf_counter() - start, found


def model_time(texts: list[str]) -> bool:
    """Measure both sides, and one run per layer beside them; return whether the bar is met."""
    from layerscope.evaluation.stored_texts import TextStates
    from layerscope.models import LoadOptions, Override, find_layers, load
    from layerscope.models.batching import batches_of
    from layerscope.models.inspection import made_up_samples
    from layerscope.models.pooling import pool

    loaded = load("minilm", LoadOptions(device="cpu"), None)
    model = find_layers(
        loaded,
        "text",
        made_up_samples(loaded)[1],
        Override(),
        max_length=None,
        prompt="",
    )
    module, encoder, depth = model.module, model.encoder, model.stack.depth

    @torch.inference_mode()
    def one_layer(group: list[str], layer: int) -> torch.Tensor:
        found = torch.empty(len(group), model.stack.width)
        for rows in batches_of(model, encoder.lengths(group)):
            inputs = encoder.batch([group[i] for i in rows]).to(model.device)
            if layer == depth:
                tokens = module(**inputs.named).last_hidden_state
            else:
                tokens = module(
                    **inputs.named, output_hidden_states=True
                ).hidden_states[layer]
            found[rows] = pool(tokens, inputs.mask, "mean")
        return found

    def check_equal(keys: list[bytes], alone: torch.Tensor, layer: int) -> None:
        stored = torch.from_numpy(states.vectors(keys, (layer, model.final, "mean")))
        worst = float((stored - alone).abs().max() / alone.abs().max())
        if not worst < 1e-5:
            raise SystemExit(f"the two sides differ by {worst:.1e} at layer {layer}")

    groups = [texts[i : i + GROUP] for i in range(0, len(texts), GROUP)]
    with tempfile.TemporaryDirectory() as folder:
        places = [(layer, model.final, "mean") for layer in range(depth + 1)]
        TextStates(model, places, Path(folder) / "warm").keys(groups[0])
        one_layer(groups[0], depth)
        states = TextStates(model, places, Path(folder) / "states")
        pairs, apart = [], []
        for number, group in enumerate(groups):
            sides: list[Callable[[], Any]] = [
                lambda g=group: states.keys(g),
                lambda g=group: one_layer(g, depth),
            ]
            order = (0, 1) if number % 2 else (1, 0)
            took, gave = {}, {}
            for side in order:
                took[side], gave[side] = timed(sides[side])
            pairs.append((took[0], took[1]))
            check_equal(gave[0], gave[1], depth)
            if number % 5 == 0:
                runs = [
                    timed(lambda g=group, k=layer: one_layer(g, k))
                    for layer in range(depth + 1)
                ]
                apart.append(sum(each for each, _ in runs) / took[0])
                for layer, (_, alone) in enumerate(runs):
                    check_equal(gave[0], alone, layer)
        size = sum(file.stat().st_size for file in states.folder.iterdir())
    ratio = statistics.median(a / b for a, b in pairs)
    everything, alone = (sum(side) for side in zip(*pairs, strict=True))
    print(
        f"{len(texts):,} texts: all {depth + 1} layers {everything:.1f} s ({size / 1e6:.0f} MB written), the last "
        f"alone {alone:.1f} s: {everything / alone:.3f} x, median over {len(pairs)} groups {ratio:.3f} x (bar {BAR})\n"
        f"one run per layer: {statistics.median(apart):.2f} x the time of all layers in one (median of {len(apart)})"
    )
    return ratio <= BAR


def judging(files: list[str], samples: int) -> None:
    """Judge every layer on every task and print the whole time with the scores."""
    import layerscope

    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        found = layerscope.evaluate(
            "minilm", files, folder, samples=samples, device="cpu", progress=False
        )
        took = time.perf_counter() - start
        print(
            f"evaluate, all layers on {len(files)} tasks with the judging: {took:.0f} s on the wall\n"
        )
        print((found.table() * 100).round(1).to_string())
        print((found.baseline() * 100).round(1).to_string())


def main() -> int:
    """Run the benchmark; exit status 1 where the bar is not met."""
    from layerscope.evaluation.tasks import open_tasks

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data", type=Path, default=Path(__file__).parents[2] / "shared" / "data"
    )
    parser.add_argument("--samples", type=int, default=2000)
    parser.add_argument(
        "--texts", type=int, help="texts of all tasks together, at most"
    )
    parser.add_argument("--no-judging", action="store_true")
    given = parser.parse_args()
    if not given.data.is_dir():
        print(
            f"the benchmark needs the five data sets in a folder: {given.data} is none, name one with --data"
        )
        return 2
    files = [f"{kind}:{given.data / name}" for name, kind in TASKS.items()]
    tasks, _ = open_tasks(files, given.samples)
    texts = list(dict.fromkeys(text for task in tasks for text in texts_of(task)))
    met = model_time(texts[: given.texts])
    if not given.no_judging:
        judging(
            [f"{kind}:{given.data / name}" for name, kind in TASKS.items()],
            given.samples,
        )
    return 0 if met else 1


if __name__ == "__main__":
    raise SystemExit(main())

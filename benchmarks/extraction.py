"""What extracting states costs over a bare forward, and what a second worker gains.

    python benchmarks/extraction.py [--texts 4096] [--repeats 5] [--no-workers]

Overhead: `extract` reads texts of 32 tokens from a Parquet file, tokenises them, pools and writes
    two layers of
MiniLM-L6; the bare forward runs the same batches, tokenised before. Both in one thread, in turns;
the median of their ratios of CPU time is printed. Bar: <= 1.10.

Workers: two processes of one thread, each with a shard, against one of one thread, from the first
    chunk that is begun
to the last that is written, models loaded: by the clock, and (for a machine that has other work) by
the CPU time of the longer one. Bar: >= 1.85 x on two free cores.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

LAYERS, TOKENS = (3, 6), 32


def texts(n: int) -> list[str]:
    """Return texts of 32 tokens, special ones included."""
    from transformers import AutoTokenizer

    from layerscope.inputs import open_corpus
    from layerscope.models.checks import embedded

    tokenizer = AutoTokenizer.from_pretrained(embedded("minilm"))
    ids = tokenizer(
        " ".join(open_corpus("stdlib-docs").samples), add_special_tokens=False
    )["input_ids"]
    found, at = [], 0
    while len(found) < n:
        text = tokenizer.decode(ids[at % len(ids) :][: TOKENS - 2])
        at += TOKENS - 2
        if (
            len(tokenizer(text)["input_ids"]) == TOKENS
        ):  # a piece may be read otherwise than it was cut
            found.append(text)
    return found


def overhead(data: Path, repeats: int) -> list[float]:
    """Return the ratios of CPU time of extraction and bare forward, in turns."""
    import torch

    import layerscope
    from layerscope.extraction import pipeline
    from layerscope.inputs import open_stream
    from layerscope.models import LoadOptions, Override, find_layers, load
    from layerscope.models.batching import batches_of
    from layerscope.models.capture import evaluating
    from layerscope.models.forward import forward

    stream, batches, compute = open_stream(data), [], pipeline.compute
    model = find_layers(
        load("minilm", LoadOptions()), "text", stream.head.samples, Override()
    )
    for chunk in stream.chunks():
        rows = batches_of(model, model.encoder.lengths(chunk.samples))
        batches += [
            model.encoder.batch([chunk.samples[i] for i in batch]) for batch in rows
        ]

    def bare() -> float:
        start = time.process_time()
        with evaluating(model.module):
            for batch in batches:
                forward(model.module, batch)
        return time.process_time() - start

    spent: list[float] = []

    def timed(*given: Any) -> None:
        start = time.process_time()
        compute(*given)
        spent.append(time.process_time() - start)

    def extracted() -> float:
        with tempfile.TemporaryDirectory() as folder:
            layerscope.extract(
                "minilm", data, LAYERS, out=Path(folder) / "states", progress=False
            )
        return spent[-1]

    torch.set_num_threads(1)
    pipeline.compute = timed
    bare(), extracted()
    return [extracted() / bare() for _ in range(repeats)]


def workers(data: Path, folder: Path, shards: int) -> tuple[float, float]:
    """Return the seconds from when the first worker begins its chunks to when the last ends, and the most CPU time."""
    code = (
        "import sys, time, torch, layerscope\n"
        "from layerscope.extraction import pipeline\n"
        "torch.set_num_threads(1)\n"
        "compute = pipeline.compute\n"
        "def timed(*given):\n"
        "    start, cpu = time.time(), time.process_time()\n"
        "    compute(*given)\n"
        "    print(start, time.time(), time.process_time() - cpu)\n"
        "pipeline.compute = timed\n"
        "layerscope.extract('minilm', sys.argv[1], '3,6', out=sys.argv[2], shard=sys.argv[3], chunk_rows=256,\n"
        "                   progress=False)\n"
    )
    running = [
        subprocess.Popen(
            [sys.executable, "-c", code, data, folder, f"{i}/{shards}"],
            stdout=subprocess.PIPE,
            text=True,
        )
        for i in range(shards)
    ]
    starts, ends, spent = zip(
        *(map(float, process.communicate()[0].split()[-3:]) for process in running),
        strict=True,
    )
    return max(ends) - min(starts), max(spent)


def main() -> None:
    """Measure both and print them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--texts", type=int, default=4096)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--no-workers", action="store_true")
    args = parser.parse_args()
    os.environ |= {
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "OMP_NUM_THREADS": "1",
    }
    import pandas as pd

    with tempfile.TemporaryDirectory() as made:
        data = Path(made) / "texts.parquet"
        pd.DataFrame({"text": texts(args.texts)}).to_parquet(data)
        ratios = overhead(data, args.repeats)
        found = {
            "overhead": round(statistics.median(ratios), 3),
            "ratios": [round(ratio, 3) for ratio in ratios],
        }
        if not args.no_workers:
            one, two = (workers(data, Path(made) / f"states{n}", n) for n in (1, 2))
            found |= {
                "one_s": one,
                "two_s": two,
                "gain": one[0] / two[0],
                "gain_in_cpu_time": one[1] / two[1],
            }
    print(json.dumps(found, default=float))


if __name__ == "__main__":
    main()

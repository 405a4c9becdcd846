"""Peak memory of `profile` with few and with many samples: it must not grow with their number.

    python benchmarks/memory.py [--small 2000] [--large 100000] python benchmarks/memory.py --small
    10000 --large 1000000 --keep-states none --width 32 --words 3

Each size runs in a process of its own: a small random encoder over the texts of a file that is
there already, default metrics, views and labels among them; what is measured is the process's peak
resident memory. Bar: within 10 %, and within 5 % where the states are not kept.
"""

from __future__ import annotations

import argparse
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

WIDTH, WORDS = 128, 12


def peak(data: str, keep_states: str = "all", width: int = WIDTH) -> float:
    """Profile the texts of a file and return the peak resident memory in MB."""
    import torch
    from transformers import AutoTokenizer, BertConfig, BertModel

    from layerscope import profile
    from layerscope.models.checks import embedded

    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(embedded("minilm"))
    config = BertConfig(
        vocab_size=30522,
        hidden_size=width,
        num_hidden_layers=4,
        num_attention_heads=4,
        intermediate_size=2 * width,
    )
    out = Path(data).parent / "run"
    taken = {"samples": "all"} if keep_states == "all" else {"keep_states": keep_states}
    profile(
        BertModel(config), data, processor=tokenizer, out=out, progress=False, **taken
    )
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def write_texts(path: Path, samples: int, length: int = WORDS) -> None:
    """Write that many seeded texts of ordinary words, of five labels."""
    words = [
        f"{a}{b}{c}"
        for a in "bdfglmnprst"
        for b in "aeiou"
        for c in ("", "n", "rk", "st", "ll")
    ]
    rng = random.Random(0)
    with path.open("w") as file:
        file.write("text,label\n")
        file.writelines(
            f"{' '.join(rng.choices(words, k=length))},{i % 5}\n"
            for i in range(samples)
        )


def measured(samples: int, args: argparse.Namespace) -> float:
    """Return the peak of a child process, and tell it."""
    with tempfile.TemporaryDirectory() as folder:
        data, start = Path(folder) / "texts.csv", time.perf_counter()
        write_texts(data, samples, args.words)
        how = ["--keep-states", args.keep_states, "--width", str(args.width)]
        command = [sys.executable, __file__, "--child", str(data), *how]
        out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    size = float(out.splitlines()[-1])
    print(
        f"{samples:,} samples: peak {size:,.0f} MB in {time.perf_counter() - start:,.0f} s",
        flush=True,
    )
    return size


def main() -> None:
    """Run both sizes and print the growth."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--small", type=int, default=2000)
    parser.add_argument("--large", type=int, default=100000)
    parser.add_argument("--keep-states", default="all")
    parser.add_argument("--width", type=int, default=WIDTH)
    parser.add_argument("--words", type=int, default=WORDS)
    parser.add_argument("--child")
    args = parser.parse_args()
    if args.child:
        print(peak(args.child, args.keep_states, args.width))
        return
    small, large = measured(args.small, args), measured(args.large, args)
    print(
        f"growth {large / small - 1:+.1%} (bar {'+10 %' if args.keep_states == 'all' else '+5 %'})"
    )


if __name__ == "__main__":
    main()

"""Peak memory of `profile` with few and with many samples: it must not grow with their number.

    python benchmarks/memory.py [--small 2000] [--large 100000]

Each size runs in a process of its own: a small random encoder over the texts of a file that is there already, default
metrics, views and labels among them; what is measured is the process's peak resident memory. Bar: within 10 %.
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

WORDS = 12


def peak(data: str) -> float:
    """Profile the texts of a file and return the peak resident memory in MB."""
    import torch
    from transformers import AutoTokenizer, BertConfig, BertModel

    from layerscope import profile
    from layerscope.models.checks import embedded

    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(embedded("minilm"))
    config = BertConfig(
        vocab_size=30522, hidden_size=128, num_hidden_layers=4, num_attention_heads=4, intermediate_size=256
    )
    out = Path(data).parent / "run"
    profile(BertModel(config), data, processor=tokenizer, out=out, samples="all", progress=False)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def write_texts(path: Path, samples: int) -> None:
    """Write that many seeded texts of ordinary words, of five labels."""
    words = [f"{a}{b}{c}" for a in "bdfglmnprst" for b in "aeiou" for c in ("", "n", "rk", "st", "ll")]
    rng = random.Random(0)
    with path.open("w") as file:
        file.write("text,label\n")
        file.writelines(f"{' '.join(rng.choices(words, k=WORDS))},{i % 5}\n" for i in range(samples))


def measured(samples: int) -> float:
    """Return the peak of a child process, and tell it."""
    with tempfile.TemporaryDirectory() as folder:
        data, start = Path(folder) / "texts.csv", time.perf_counter()
        write_texts(data, samples)
        command = [sys.executable, __file__, "--child", str(data)]
        out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    size = float(out.splitlines()[-1])
    print(f"{samples:,} samples: peak {size:,.0f} MB in {time.perf_counter() - start:,.0f} s", flush=True)
    return size


def main() -> None:
    """Run both sizes and print the growth."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--small", type=int, default=2000)
    parser.add_argument("--large", type=int, default=100000)
    parser.add_argument("--child")
    args = parser.parse_args()
    if args.child:
        print(peak(args.child))
        return
    small, large = measured(args.small), measured(args.large)
    print(f"growth {large / small - 1:+.1%} (bar +10 %)")


if __name__ == "__main__":
    main()

"""Peak memory of `profile` with few and with many samples: it must not grow with their number.

    python benchmarks/memory.py [--small 2000] [--large 20000]

Each size runs in a process of its own on a small random encoder over the sentences of a generated file; what is
measured is the process's peak resident memory. Bar: within 10 %.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path


def peak(samples: int) -> float:
    """Profile that many short texts and return the peak resident memory in MB."""
    import numpy as np
    import torch
    from transformers import AutoTokenizer, BertConfig, BertModel

    from layerscope import profile
    from layerscope.models.hub import embedded

    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(embedded("minilm"))
    config = BertConfig(
        vocab_size=30522, hidden_size=128, num_hidden_layers=4, num_attention_heads=4, intermediate_size=256
    )
    words = [word for word in tokenizer.get_vocab() if word.isalpha()]
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "texts.csv"
        with data.open("w") as file:
            file.write("text,label\n")
            for i in range(samples):
                file.write(f"{' '.join(rng.choice(words, 12))},{i % 5}\n")
        profile(BertModel(config), data, processor=tokenizer, out=Path(folder) / "run", samples="all", progress=False)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    """Run both sizes and print the growth."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--small", type=int, default=2000)
    parser.add_argument("--large", type=int, default=20000)
    parser.add_argument("--child", type=int)
    args = parser.parse_args()
    if args.child:
        print(json.dumps(peak(args.child)))
        return
    sizes = {}
    for samples in (args.small, args.large):
        command = [sys.executable, __file__, "--child", str(samples)]
        out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        sizes[samples] = float(out.splitlines()[-1])
        print(f"{samples:,} samples: peak {sizes[samples]:,.0f} MB")
    print(f"growth {sizes[args.large] / sizes[args.small] - 1:+.1%} (bar +10 %)")


if __name__ == "__main__":
    main()

"""What a million texts cost: seconds of one CPU core and bytes on disk for each, by mode and model.

    python benchmarks/scale.py [--texts 2000] [--models minilm,bert-base,free]

Each figure is the slope between N and 2 N texts of 32 tokens, each size in a process of one thread
of its own, so that loading and start do not count. `forward` is the model alone on the batches that
`profile` would make. The model `free` has blocks that cost next to nothing: what is left is what
layerscope itself takes for each text.
"""

from __future__ import annotations

import argparse
import random
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
import transformers as hf
from torch import nn

import layerscope
from layerscope.models import LoadOptions, Override, find_layers, load
from layerscope.models.batching import batches_of
from layerscope.models.checks import embedded

TOKENS = 32
WORDS = (
    "the",
    "time",
    "people",
    "way",
    "day",
    "man",
    "thing",
    "woman",
    "life",
    "world",
    "school",
    "state",
)
MODES: dict[str, dict[str, Any]] = {
    "forward": {},
    "extract, last layer": {"layers": [-1]},
    "extract, all layers": {"layers": "all"},
    "profile": {"views": 0},
    "profile, with views": {},
    "profile --keep-states none": {"views": 0, "keep_states": "none"},
}


class Adds(nn.Module):
    """A block of one addition."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.randn(384))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the states with the bias added."""
        return x + self.bias


class Free(nn.Module):
    """Six blocks of 384 numbers a token, of an addition each."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(30522, 384)
        self.blocks = nn.ModuleList([Adds() for _ in range(6)])

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Return the states after the last block."""
        x = self.embed(input_ids)
        for block in self.blocks:
            x = block(x)
        return x


def model_of(name: str) -> tuple[Any, Any]:
    """Return a model with its tokenizer."""
    tokenizer = hf.AutoTokenizer.from_pretrained(embedded("minilm"))
    torch.manual_seed(0)
    made = {
        "minilm": str,
        "bert-base": lambda _: hf.BertModel(hf.BertConfig()).eval(),
        "free": lambda _: Free(),
    }
    return made[name](name), tokenizer


def write_texts(path: Path, texts: int) -> None:
    """Write seeded texts of 30 common words, a token each; with [CLS] and [SEP] 32."""
    rng = random.Random(0)
    rows = (f"{' '.join(rng.choices(WORDS, k=TOKENS - 2))}\n" for _ in range(texts))
    path.write_text("text\n" + "".join(rows))


def work(mode: str, name: str, data: Path) -> int:
    """Do it once; return the bytes it leaves on disk."""
    model, processor = model_of(name)
    out, options = data.parent / "out", dict(MODES[mode])
    own = {} if isinstance(model, str) else {"processor": processor}
    if mode == "forward":
        loaded = load(model, LoadOptions(), processor)
        texts = data.read_text().splitlines()[1:]
        layered = find_layers(
            loaded, "text", texts, Override(), max_length=None, prompt=""
        )
        with torch.inference_mode():
            for batch in batches_of(layered, layered.encoder.lengths(texts)):
                layered.run(
                    layered.encoder.batch([texts[i] for i in batch]), lambda *_: None
                )
        return 0
    if mode.startswith("extract"):
        layerscope.extract(model, data, out=out, progress=False, **options, **own)
    else:
        layerscope.profile(
            model, data, samples="all", out=out, progress=False, **options, **own
        )
    return sum(path.stat().st_size for path in out.rglob("*") if path.is_file())


def measured(mode: str, name: str, texts: int) -> tuple[float, int]:
    """Return CPU seconds and bytes of a process of one thread."""
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "texts.csv"
        write_texts(data, texts)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [sys.executable, __file__, "--child", mode, name, str(data)]
        size = int(
            subprocess.run(
                command, check=True, capture_output=True, text=True
            ).stdout.splitlines()[-1]
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, size


def main() -> None:
    """Print milliseconds and bytes of a text, and what a million and a hundred million take."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--texts", type=int, default=2000)
    parser.add_argument("--models", default="minilm,bert-base,free")
    parser.add_argument("--child", nargs=3)
    asked = parser.parse_args()
    if asked.child:
        torch.set_num_threads(1)
        print(work(asked.child[0], asked.child[1], Path(asked.child[2])))
        return
    print(
        f"{'model':10} {'mode':28} {'ms/text':>8} {'× forward':>9} {'h/million':>9} {'GB/million':>10}"
    )
    for name in asked.models.split(","):
        alone = 0.0
        for mode in MODES:
            (one, small), (two, large) = (
                measured(mode, name, n) for n in (asked.texts, 2 * asked.texts)
            )
            seconds, size = (two - one) / asked.texts, (large - small) / asked.texts
            alone = alone or seconds
            print(
                f"{name:10} {mode:28} {seconds * 1e3:8.2f} {seconds / alone:9.2f} {seconds * 1e6 / 3600:9.1f} "
                f"{size / 1e3:10.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()

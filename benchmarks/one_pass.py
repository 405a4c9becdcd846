"""One pass against the same seven metrics one after another, each with its own forwards at batch 1.

    python benchmarks/one_pass.py [--samples 200] [--repeats 3]

Both sides read the same docstrings at their real lengths and the same two views, compute the same
numbers (an error where they differ by more than 1e-5), and count their forwards. Bar: >= 4 x on a
CPU, >= 20 x on a GPU.
"""

from __future__ import annotations

import argparse
import math
import statistics
import tempfile
import time
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor

from layerscope import metrics, profile
from layerscope.inputs import Corpus, augment, draw, open_corpus
from layerscope.models import LayeredModel, LoadOptions, Override, find_layers, load
from layerscope.models.checks import embedded
from layerscope.models.placing import torch_device
from layerscope.models.pooling import pool


class OneByOne:
    """Seven metrics as separate scripts compute them: a model forward for every sample of every metric."""

    def __init__(self, model: LayeredModel, corpus: Corpus) -> None:
        self.model, self.texts, self.forwards = (
            model,
            [str(text) for text in corpus.samples],
            0,
        )
        # views are drawn by a sample's name
        self.ids = [zlib.crc32(name.encode()) for name in corpus.names]

    def tokens(self, text: str) -> list[Tensor]:
        """Return the states of all layers of one text."""
        self.forwards += 1
        states: list[Tensor] = []
        inputs = self.model.encoder.batch([text]).to(self.model.device)
        self.model.run(
            inputs, lambda _, site, x: states.append(x[0]) if site == "raw" else None
        )
        return states

    def view(self, i: int, view: int) -> str:
        """Return view 0 (the text itself), 1 or 2."""
        return (
            str(
                augment(self.texts[i], "text", seed=0, sample_id=self.ids[i], view=view)
            )
            if view
            else self.texts[i]
        )

    def pooled(self, views: Iterable[int]) -> Tensor:
        """Return mean states [layers, N, views, D]."""
        rows = [
            [
                torch.stack(
                    [
                        pool(x[None], None, "mean")[0]
                        for x in self.tokens(self.view(i, v))
                    ]
                )
                for v in views
            ]
            for i in range(len(self.texts))
        ]
        return (
            torch.stack([torch.stack(row) for row in rows]).permute(2, 0, 1, 3).double()
        )

    def run(self) -> dict[str, list[float]]:
        """Return every metric by layer."""
        block = [
            np.random.default_rng([0, 2]).permutation(len(self.texts))[
                : min(len(self.texts), 256)
            ]
        ]
        out: dict[str, list[float]] = {}
        for name, per_sample in (
            ("prompt_entropy", metrics.prompt_entropy),
            ("curvature", metrics.curvature),
        ):
            values = [
                [float(per_sample(x)) for x in self.tokens(text)] for text in self.texts
            ]
            out[name] = np.nanmean(values, axis=0).tolist()
        out["dataset_entropy"] = [
            float(metrics.dataset_entropy(z[:, 0])) for z in self.pooled([0])
        ]
        out["effective_rank"] = [
            float(metrics.effective_rank(z[:, 0])) for z in self.pooled([0])
        ]
        for name, paired in (("infonce", metrics.infonce), ("dime", metrics.dime)):
            values = [
                [float(paired(z[b, 0], z[b, 1])) for b in block]
                for z in self.pooled([0, 1])
            ]
            out[name] = np.mean(values, axis=1).tolist()
        out["lidar"] = [float(metrics.lidar(z)) for z in self.pooled([0, 1, 2])]
        return out


def main() -> None:
    """Time both sides in turns and compare their numbers."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="stdlib-docs")
    parser.add_argument("--samples", type=int, default=400)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--device", default="auto")
    args = parser.parse_args()
    corpus = draw(open_corpus(args.data), args.samples, 0)
    device = str(torch_device(LoadOptions(device=args.device)))
    served = SentenceTransformer(embedded("minilm"), device=device)
    loaded = load(served, LoadOptions(device=args.device))
    model = find_layers(
        loaded, "text", corpus.samples[:8], Override(), max_length=None, prompt=""
    )
    ratios: list[float] = []
    for repeat in range(args.repeats):
        with tempfile.TemporaryDirectory() as folder:
            start = time.perf_counter()
            run: Any = profile(
                served,
                corpus,
                out=Path(folder) / "run",
                metrics="seven",
                samples="all",
                device=device,
                progress=False,
            )
            once = time.perf_counter() - start
            table, forwards = run.table(), len(run.folder.plan)
        other = OneByOne(model, corpus)
        start = time.perf_counter()
        with torch.inference_mode():
            values = other.run()
        apart = time.perf_counter() - start
        ratios.append(apart / once)
        worst = max(
            _difference(table, name, by_layer) for name, by_layer in values.items()
        )
        if not worst < 1e-5:
            raise SystemExit(f"the two sides differ by {worst:.1e}")
        print(
            f"repeat {repeat}: one pass {once:.1f} s ({forwards} forwards), "
            f"one after another {apart:.1f} s ({other.forwards} forwards), {ratios[-1]:.2f} x; "
            f"largest relative difference of a value {worst:.1e}"
        )
    print(f"{statistics.median(ratios):.2f} x (bar 4 on a CPU, 20 on a GPU)")


def _difference(table: Any, name: str, by_layer: list[float]) -> float:
    rows = table[(table["metric"] == name) & (table["site"] == "raw")].sort_values(
        "layer"
    )
    return max(
        abs(a - b) / max(abs(b), 1e-6)
        for a, b in zip(rows["value"], by_layer, strict=True)
        if not math.isnan(b)
    )


if __name__ == "__main__":
    main()

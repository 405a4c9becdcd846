"""How long the page of ten runs of fifty layers takes to write and to open, and how large a page of one run is.

    python benchmarks/page.py [--runs 10] [--depth 50]

The runs are real: residual stacks over random rows, with labels, a final norm and a head, so that
every figure and every two layers are there. The page is opened in five fresh tabs (--tabs) of a
headless Chromium. Bars: 3 s until it is drawn, 1 MB for one run, 2 MB for ten.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

WIDTH, CLASSES = 32, 3


class Block(nn.Module):
    """One residual layer."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.inner = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, states: Tensor) -> Tensor:
        """Return states [B, D] a step further."""
        return states + torch.tanh(self.inner(self.norm(states)))


def stack(depth: int, seed: int) -> nn.Module:
    """Return a residual classifier of rows [B, 8]."""
    torch.manual_seed(seed)
    blocks = nn.Sequential(*(Block() for _ in range(depth)))
    return nn.Sequential(
        nn.Linear(8, WIDTH), blocks, nn.LayerNorm(WIDTH), nn.Linear(WIDTH, CLASSES)
    )


def opening(page: Path, tabs: int) -> tuple[float, float]:
    """Return the seconds until a page is loaded and until its last plot is drawn, medians over fresh tabs."""
    from playwright.sync_api import sync_playwright

    names = ("chromium", "chromium-browser", "google-chrome")
    path = os.environ.get("LAYERSCOPE_CHROMIUM") or next(
        filter(None, map(shutil.which, names))
    )
    loaded, drawn = [], []
    with sync_playwright() as playwright:
        browser: Any = playwright.chromium.launch(
            executable_path=path, args=["--no-sandbox", "--disable-gpu"]
        )
        for _ in range(tabs):
            tab = browser.new_page()
            start = time.perf_counter()
            tab.goto(page.as_uri())
            loaded.append(time.perf_counter() - start)
            tab.wait_for_selector("html[data-drawn=all]", timeout=60_000)
            drawn.append(time.perf_counter() - start)
            tab.close()
        browser.close()
    return statistics.median(loaded), statistics.median(drawn)


def main(runs: int, depth: int, tabs: int) -> None:
    """Profile, write and open."""
    import layerscope

    rows = torch.randn(300, 8, generator=torch.Generator().manual_seed(0))
    data = (rows.numpy(), (rows.sum(1) > 0).long().numpy())
    with tempfile.TemporaryDirectory() as folder:
        made = [
            layerscope.profile(
                stack(depth, seed),
                data,
                out=Path(folder) / f"run-{seed}",
                progress=False,
            )
            for seed in range(runs)
        ]
        one = layerscope.report(made[0], Path(folder) / "one.html")
        start = time.perf_counter()
        page = layerscope.report(made, Path(folder) / "all.html")
        seconds = time.perf_counter() - start
        print(f"one run of {depth} layers: {one.stat().st_size / 1e6:.2f} MB (bar 1)")
        print(
            f"{runs} runs of {depth} layers: {page.stat().st_size / 1e6:.2f} MB (bar 2), written in {seconds:.1f} s"
        )
        loaded, drawn = opening(page, tabs)
        print(
            f"opened: loaded in {loaded:.2f} s, every plot drawn in {drawn:.2f} s (bar 3)"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--depth", type=int, default=50)
    parser.add_argument("--tabs", type=int, default=5)
    main(**vars(parser.parse_args()))

"""Does causal depth tell which blocks can go? Its measures against the loss that is measured without each block.

    python benchmarks/causal_depth.py MODEL [MODEL …] [--data stdlib-docs] [--samples 200]

Half of the samples give the measures by block (`profile --metrics causal_depth`), the other half the
loss that the model gains without each block alone, as `select --drop` measures it. Printed: the
Spearman correlation of each measure with that loss over the blocks, with its p value; then what the
model loses without a third of its blocks, those lowest by each measure, by greedy removal, and the
last ones.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
from scipy.stats import spearmanr

import layerscope
from layerscope.inputs import open_corpus
from layerscope.models import LoadOptions, Override
from layerscope.selection.block_drop import Meter, greedy_removal
from layerscope.truncation.source import open_source

MEASURES = {
    "change of the prediction": ("skip_prediction", "same token"),
    "change of later blocks": ("skip_later", "same token"),
    "change of later blocks, future": ("skip_later", "future tokens"),
    "norm over the stream's": ("branch_norm", "block"),
}


def measures_of(run: layerscope.Run, meter: Meter) -> dict[str, np.ndarray]:
    """Return each measure by block; what is defined for the blocks before the last alone is 0 for it."""
    values = {"block influence": np.asarray(meter.influence())}
    table = run.table()
    for name, (metric, variant) in MEASURES.items():
        rows = table[(table["metric"] == metric) & (table["variant"] == variant)]
        if len(rows):
            by_block = np.zeros(run.depth)
            by_block[rows["layer"].to_numpy(int) - 1] = rows["value"]
            values[name] = by_block
    return values


def judge(model: str, data: str, samples: int) -> None:
    """Print the verdict on one model."""
    corpus = open_corpus(data).take(range(samples))
    half = samples // 2
    with tempfile.TemporaryDirectory() as folder:
        run = layerscope.profile(
            model,
            corpus.take(range(half)),
            metrics="causal_depth",
            views=0,
            out=Path(folder) / "run",
            progress=False,
        )
        layered = open_source(model, None, Override(), LoadOptions()).model
        chosen, judged = corpus.samples[:half], corpus.samples[half:]
        choosing = Meter(layered, chosen, layered.pooling[0], lambda _: None)
        judging = Meter(layered, judged, layered.pooling[0], lambda _: None)
        losses = np.array([judging.cost((b,))[0] for b in range(1, run.depth + 1)])
        measures = measures_of(run, choosing)
        drop = max(1, run.depth // 3)
        print(f"{run.info['model']['name']}: {run.depth} blocks")
        print(f"  loss without each block: {np.round(losses, 3).tolist()}")
        for name, values in measures.items():
            found = spearmanr(values, losses)
            lowest = tuple(
                sorted((np.argsort(values, kind="stable")[:drop] + 1).tolist())
            )
            loss = judging.cost(lowest)[0]
            print(
                f"  {name:32} rho {found.statistic:+.2f} (p {found.pvalue:.3f}); without {lowest}: {loss:.3f}"
            )
        greedy = greedy_removal(choosing, drop)
        last = tuple(range(run.depth - drop + 1, run.depth + 1))
        for name, blocks in {"greedy removal": greedy, "the last blocks": last}.items():
            print(f"  {name:32} without {blocks}: {judging.cost(blocks)[0]:.3f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--data", default="stdlib-docs")
    parser.add_argument("--samples", type=int, default=200)
    options = parser.parse_args()
    for model in options.models:
        judge(model, options.data, options.samples)

"""Whether the gain that `select` states is the gain that its choice brings: over seeded halves of labelled sets.

The embedded MiniLM embeds each set once. Seeded samples of it are halved: one half chooses, as a
run of it would; a probe of all of that half, at the layer that was chosen and at the last, judges
the other half. The bias is the mean of stated less realised gain, ± the standard error of that mean
over the draws. Draws are small beside the set: halves of the same few samples would be unlike by
construction, what one has more of the other has less of.

    python benchmarks/stated_gain.py [--data ../shared/data] [--rows 3000] [--samples 400] [--halves
    50]
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np

import layerscope
from layerscope.probes.linear import held_out, linear_probe_hits
from layerscope.selection.choice import Case, choose_layer
from layerscope.selection.scored import of_samples

SETS = {"trec": "train.csv", "sst2": "train.csv", "ag_news": "test.csv"}
RULES = ("best-if-clear", "best", "one-standard-error")
SEED, FOLDS = 1000, 5


def states_of(file: Path, rows: int, folder: Path) -> tuple[list[np.ndarray], np.ndarray]:
    """Return the pooled states [N, D] of every layer as a truncated model yields them, and the labels [N]."""
    options = {"samples": rows, "views": 0, "metrics": "effective_rank", "progress": False}
    run = layerscope.profile("minilm", file, out=folder, **options)
    plan = run.folder.plan.query("view == 0").sort_values("sample")
    return [run.pooled(layer, run.final) for layer in run.layers], plan["label"].to_numpy()


def hits_of(
    states: list[np.ndarray], labels: np.ndarray, samples: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return which drawn samples each layer's probe gets right [n, layers], and their folds, -1 in the other half."""
    drawn = np.random.default_rng(seed).choice(
        len(labels), min(samples, len(labels)), replace=False
    )
    labels, states = labels[drawn], [rows[drawn] for rows in states]
    names, sizes = np.unique(labels, return_counts=True)
    common = np.isin(labels, names[sizes >= 2 * FOLDS])
    labels, states = labels[common], [rows[common] for rows in states]
    other = held_out(labels, 0.5, seed)
    found = [linear_probe_hits(rows, labels, FOLDS, seed, other) for rows in states]
    return np.stack([right for right, *_ in found], 1).astype(np.float64), found[0][1]


def stated_and_realised(hits: np.ndarray, fold: np.ndarray, rule: str) -> tuple[float, float]:
    """Return the gain over the last layer that a choice on one half states, and that on the other half."""
    inside = fold >= 0
    values = np.hstack([hits, hits[:, -1:]])
    scored = replace(of_samples(values[inside], ""), blocks=fold[inside])
    about = {"model": "", "site": None, "pooling": None, "notes": ()}
    found = choose_layer(Case(about, scored.layers, hits.shape[1] - 1, scored, None), rule)
    apart = hits[~inside]
    return found.gain or 0.0, float((apart[:, found.layer] - apart[:, -1]).mean())


def main() -> None:
    """Print stated and realised gain by set and rule."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--rows", type=int, default=3000)
    parser.add_argument("--samples", type=int, default=400)
    parser.add_argument("--halves", type=int, default=50)
    parser.add_argument("--sets", default=",".join(SETS))
    asked = parser.parse_args()
    print("| set | rule | stated | realised | bias |\n| --- | --- | --- | --- | --- |")
    for name in asked.sets.split(","):
        with tempfile.TemporaryDirectory() as folder:
            states, labels = states_of(
                asked.data / name / SETS[name], asked.rows, Path(folder) / "run"
            )
        halves = [hits_of(states, labels, asked.samples, SEED + i) for i in range(asked.halves)]
        for rule in RULES:
            stated, realised = (
                100 * np.array([stated_and_realised(*half, rule) for half in halves]).T
            )
            error = (stated - realised).std(ddof=1) / len(halves) ** 0.5
            bias = f"{(stated - realised).mean():+.2f} ±{error:.2f}"
            print(
                f"| {name} | {rule} | {stated.mean():+.2f} | {realised.mean():+.2f} | {bias} |",
                flush=True,
            )


if __name__ == "__main__":
    main()

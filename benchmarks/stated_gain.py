"""Whether the gain that `select` states is the gain that its choice brings: over seeded halves of labelled sets.

The embedded MiniLM embeds each set once. Seeded samples of it are halved: one half chooses, as a
run of it would; probes at the layer that was chosen and at the last judge the other half. The bias
is the mean of stated less realised gain, ± the standard error of that mean over the draws. It is
given twice: by probes of as many samples as those that judged the choice, four folds of five, which
is what choosing itself adds; and by probes of the whole half, where besides the layers differ less
as far as the last layer needs more labels than the chosen one. Draws are small beside the set:
halves of the same few samples would be unlike by construction, what one has more of the other has
less of.

    python benchmarks/stated_gain.py [--data ../shared/data] [--rows 3000] [--samples 400] [--halves
    50]
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
from sklearn.model_selection import train_test_split

import layerscope
from layerscope.probes.linear import APART, linearly_judged
from layerscope.probes.scores import stratified, usable_rows
from layerscope.selection.choice import Case, choose_layer
from layerscope.selection.scored import of_samples

SETS = {"trec": "train.csv", "sst2": "train.csv", "ag_news": "test.csv"}
RULES = ("best-if-clear", "best")
SEED, FOLDS = 1000, 5


def states_of(
    file: Path, rows: int, folder: Path
) -> tuple[list[np.ndarray], np.ndarray]:
    """Return the pooled states [N, D] of every layer as a truncated model yields them, and the labels [N]."""
    options = {
        "samples": rows,
        "views": 0,
        "metrics": "effective_rank",
        "progress": False,
    }
    run = layerscope.profile("minilm", file, out=folder, **options)
    plan = run.folder.plan.query("view == 0").sort_values("sample")
    return [run.pooled(layer, run.final) for layer in run.layers], plan[
        "label"
    ].to_numpy()


def hits_of(
    states: list[np.ndarray], labels: np.ndarray, samples: int, seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return which drawn samples each layer's probe gets right [n, layers], and their folds, -1 in the other half.

    Last which samples of the other half are right by a probe without one of the folds.
    """
    drawn = np.random.default_rng(seed).choice(
        len(labels), min(samples, len(labels)), replace=False
    )
    labels, states = labels[drawn], [rows[drawn] for rows in states]
    names, sizes = np.unique(labels, return_counts=True)
    common = np.isin(labels, names[sizes >= 2 * FOLDS])
    labels, states = labels[common], [rows[common] for rows in states]
    halves = train_test_split(
        np.arange(len(labels)), test_size=0.5, stratify=labels, random_state=seed
    )
    other = np.isin(np.arange(len(labels)), halves[1])
    hits, fold = hits_at(states, labels, seed, other)
    kept = fold != seed % FOLDS
    four, fold_of_four = hits_at(
        [rows[kept] for rows in states], labels[kept], seed, other[kept]
    )
    return hits, fold, four[fold_of_four < 0]


def hits_at(
    states: list[np.ndarray], labels: np.ndarray, seed: int, other: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return which samples each layer's probe gets right [n, layers], and their folds, -1 for others."""
    hits = []
    for layer in states:
        rows, classes, _ = usable_rows(layer, labels, FOLDS, least=3)
        fold = np.full(len(rows), APART)
        fold[~other] = stratified(classes[~other], FOLDS, seed)
        hits.append(linearly_judged(rows, classes, fold, seed)[0])
    return np.stack(hits, 1).astype(np.float64), fold


def gains(
    hits: np.ndarray, fold: np.ndarray, of_four: np.ndarray, rule: str
) -> tuple[float, float, float]:
    """Return the gain over the last layer that is stated, and those realised by probes of four folds and of all."""
    inside = fold >= 0
    values = np.hstack([hits, hits[:, -1:]])
    layers = range(hits.shape[1])
    scored = replace(of_samples(values[inside], "", layers), blocks=fold[inside])
    about = {"model": "", "site": None, "pooling": None, "notes": ()}
    choice = choose_layer(
        Case(about, scored.layers, hits.shape[1] - 1, scored, None), rule
    )
    realised = [
        float((judged[:, choice.layer] - judged[:, -1]).mean())
        for judged in (of_four, hits[~inside])
    ]
    return choice.gain or 0.0, *realised


def shown(values: np.ndarray) -> str:
    """Return the mean of values and its standard error."""
    return f"{values.mean():+.2f} ±{values.std(ddof=1) / len(values) ** 0.5:.2f}"


def main() -> None:
    """Print stated and realised gain by set and rule, and of each rule over all sets."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--rows", type=int, default=3000)
    parser.add_argument("--samples", type=int, default=400)
    parser.add_argument("--halves", type=int, default=50)
    parser.add_argument("--sets", default=",".join(SETS))
    options = parser.parse_args()
    print(
        "| set | rule | stated | realised, 4 of 5 folds | bias | realised, all folds | bias |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- |")
    every: dict[str, list[np.ndarray]] = {rule: [] for rule in RULES}
    for name in options.sets.split(","):
        with tempfile.TemporaryDirectory() as folder:
            states, labels = states_of(
                options.data / name / SETS[name], options.rows, Path(folder) / "run"
            )
        halves = [
            hits_of(states, labels, options.samples, SEED + draw)
            for draw in range(options.halves)
        ]
        for rule in RULES:
            every[rule].append(100 * np.array([gains(*half, rule) for half in halves]))
            print(row(name, rule, every[rule][-1]), flush=True)
    for rule, sets in every.items():
        print(row("all", rule, np.concatenate(sets)))


def row(name: str, rule: str, values: np.ndarray) -> str:
    """Return a row of the table, of gains [halves, 3] as `gains` returns them."""
    stated, of_four, of_all = values.T
    cells = (
        name,
        rule,
        f"{stated.mean():+.2f}",
        f"{of_four.mean():+.2f}",
        shown(stated - of_four),
    )
    return (
        f"| {' | '.join((*cells, f'{of_all.mean():+.2f}', shown(stated - of_all)))} |"
    )


if __name__ == "__main__":
    main()

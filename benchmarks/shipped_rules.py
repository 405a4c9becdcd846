"""Make the rules without labels that come with the package, each with its record on models held out.

Two parts. The metrics' rules are fitted on what the authors of Layer by Layer published for four Pythia models, one of
them at many training steps; only what follows from it is kept, per rule and held-out choice: direction, correlation,
the layer chosen, five scores. The half-text rule has one direction, so every model is one held out: it is measured here
on the texts of each task, and judged by the task's own scores, which `layerscope evaluate` gives.

    python benchmarks/shipped_rules.py [--shared ../shared] [--out layerscope/scores/shipped_rules.json] [--keep]

`--keep` takes the half-text rule as it is there instead of measuring it again.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path

import numpy as np
import pandas as pd

import layerscope
import layerscope.scores as ls
from layerscope.evaluation.half_text import clear_maximum, half_text_ranks, halves_of
from layerscope.evaluation.texts import TextStates
from layerscope.inputs import Corpus
from layerscope.models import LoadOptions, Override, find_layers, load
from layerscope.models.inspection import made_up_samples
from layerscope.scores import Choice, Evaluation, Rule
from layerscope.scores.fitting import fixed_layers

AUTHORS = (
    "scores and metric values published with Layer by Layer (Skean et al. 2025) for Pythia-14M, -70M, -160M and -410M, "
    "which are one family, and 410M at 14 training steps; the metrics were computed by their authors, in part by other "
    "definitions than here"
)
OURS = (
    "measured here on the texts of four tasks, 500 rows each (Banking77, TREC, SST-2, STS-B), scores of the same "
    "tasks; the rule took its form (rank, two standard errors) on these very tasks, so that its record flatters it"
)
TASKS = ("classification:banking77", "classification:trec", "classification:sst2", "sts:stsbenchmark")
KINDS = {"minilm": "bidirectional", "models/stories260K": "causal"}
ROWS = 500
SCORES = ("mteb_scores.csv.gz", "mteb_scores_more.csv.gz")
METRICS = ("metrics.csv.gz", "metrics_more.csv.gz")


def published(folder: Path) -> list[Rule]:
    """Rules fitted on the published values, each model held out in turn."""
    scores = [layerscope.open_evaluation(folder / name).scores for name in SCORES]
    evaluation = Evaluation(pd.concat(scores, ignore_index=True))
    frames = [ls.open_metrics(folder / name) for name in METRICS]
    metrics = ls.one_variant(ls.corpus_averages(pd.concat(frames, ignore_index=True)))
    source = f"{AUTHORS} ({date.today()})"
    return [_told(rule, source) for rule in ls.fit_rules(metrics, evaluation)]


def _told(rule: Rule, source: str) -> Rule:
    choices = tuple(replace(choice, kind="causal") for choice in rule.choices)
    return replace(rule, source=source, choices=choices, parts=tuple(replace(part, choices=()) for part in rule.parts))


def half_text(shared: Path, scores: Path) -> Rule:
    """The record of half-text recall on models and tasks at hand."""
    found = [entry for model, kind in KINDS.items() for entry in _choices(model, kind, shared, scores)]
    fixed = fixed_layers([(choice.model, by_layer) for choice, by_layer in found])
    choices = tuple(
        replace(choice, fixed=float(by_layer[layer])) for (choice, by_layer), layer in zip(found, fixed, strict=True)
    )
    source = f"{OURS} ({date.today()})"
    return Rule("half-text", "half_text_reciprocal_rank", "maximum", float("nan"), choices, source=source)


def _choices(name: str, kind: str, shared: Path, scores: Path) -> Iterator[tuple[Choice, pd.Series]]:
    given = name if name == "minilm" else str(shared / name)
    tasks = [f"{task.partition(':')[0]}:{shared / 'data' / task.partition(':')[2]}" for task in TASKS]
    evaluation = layerscope.evaluate(given, tasks, scores / Path(name).name, samples=ROWS)
    table = evaluation.table()
    loaded = load(given, LoadOptions())
    model = find_layers(loaded, *made_up_samples(loaded), Override(), max_length=None, prompt="")
    layers = range(1, model.stack.depth + 1)
    for task in TASKS:
        place = shared / "data" / task.partition(":")[2]
        with tempfile.TemporaryDirectory() as folder:
            states = TextStates(model, [(k, model.final, model.pooling[0]) for k in layers], Path(folder))
            halves = halves_of(_texts(place), ROWS)
            ranks = half_text_ranks(states, halves, model.final, model.pooling[0], layers)
        column, layer = table[place.name].loc[1:], layers[clear_maximum(ranks)]
        print(
            f"{loaded.name} {place.name}: {len(halves)} texts, 1/rank {np.round(ranks.mean(0), 4)}, "
            f"scores {column.round(3).tolist()}"
        )
        choice = Choice(
            loaded.name, place.name, "maximum", layer, score=float(column[layer]), last=float(column.iloc[-1]),
            best=float(column.max()), mean=float(column.mean()), kind=kind,
        )  # fmt: skip
        yield choice, column


def _texts(place: Path) -> Corpus:
    """The texts of a task's test rows, without labels, pairs one after the other."""
    frame = pd.read_csv(place / "test.csv")
    texts = [str(text) for name in ("text", "text_a", "text_b") if name in frame for text in frame[name]]
    return Corpus(place.name, "text", tuple(texts), tuple(map(str, range(len(texts)))))


def main() -> None:
    """Fit, measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shared", type=Path, default=Path("../shared"))
    parser.add_argument("--scores", type=Path, default=Path("scores"))
    parser.add_argument("--out", type=Path, default=Path("layerscope/scores/shipped_rules.json"))
    parser.add_argument("--keep", action="store_true")
    asked = parser.parse_args()
    kept = [rule for rule in ls.shipped_rules() if asked.keep and rule.name == "half-text"]
    halves = kept or [half_text(asked.shared, asked.scores)]
    rules = [*published(asked.shared / "data" / "published_layerwise"), *halves]
    print(ls.save_rules(rules, asked.out, command="python benchmarks/shipped_rules.py"))


if __name__ == "__main__":
    main()

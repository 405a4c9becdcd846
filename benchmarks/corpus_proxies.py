"""Hold proxies made of texts alone against real scores by layer: which layer they take, and what that one misses.

Four proxies: the halves of a text find each other; a text finds a copy with words changed as `profile` changes them;
a sentence of running text (Brown) finds the next one; a layer agrees with the model as shipped, or with all other
layers (shared neighbours). Each takes the layer of its highest value, without a constant to set; "clear" is what
`select --rule half-text` does. Two models decide nothing.

    python benchmarks/corpus_proxies.py [--shared ../shared] [--scores scores] [--rows 500] [--model minilm]
"""

from __future__ import annotations

import argparse
import json
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

import layerscope
from layerscope.evaluation import half_text_reciprocal_rank
from layerscope.evaluation.half_text import clear_maximum, halves_of
from layerscope.evaluation.texts import TextStates
from layerscope.inputs import Corpus, augment
from layerscope.metrics import mutual_knn
from layerscope.models import LoadOptions, Override, find_layers, load
from layerscope.models.inspection import made_up_samples
from layerscope.scores import shipped_rules
from layerscope.scores.statistics import spearman

TASKS = (
    "classification:banking77", "classification:trec", "classification:sst2", "classification:amazon_counterfactual_en",
    "sts:stsbenchmark", "sts:sts12", "pair-classification:mrpc",
)  # fmt: skip
MODELS = ("minilm", "models/stories260K")
SENTENCES = 500


def sentences(brown: Path) -> list[list[tuple[str, str]]]:
    """The sentences of the Brown corpus in their order, words with tags."""
    with zipfile.ZipFile(brown) as archive:
        names = sorted(name for name in archive.namelist() if name.startswith("brown/c") and name[-1].isdigit())
        lines = [line.split() for name in names for line in archive.read(name).decode().splitlines()]
    return [[tuple(word.rsplit("/", 1)) for word in line] for line in lines if len(line) >= 8]


def values(states: np.ndarray, other: np.ndarray) -> np.ndarray:
    """How well rows find their partners at each layer, `[N, layers]`, of `[layers, N, D]` twice."""
    return np.stack([half_text_reciprocal_rank(a, b) for a, b in zip(states, other, strict=True)], 1)


def proxies(
    embed: Callable[[list[str]], np.ndarray], texts: list[str], corpus: Corpus, running: list[str], rows: int
) -> dict[str, np.ndarray]:
    """By name a value for each layer, or for each text and layer."""
    changed = [augment(text, "text", seed=0, sample_id=i, view=1) for i, text in enumerate(texts)]
    halves, plain = halves_of(corpus, rows), embed(texts)
    alike = [[float(mutual_knn(a, b)) for b in plain] for a in plain]
    found = {
        "half-text": values(embed(list(halves.first)), embed(list(halves.second))),
        "changed words": values(plain, embed(changed)),
        "next sentence": values(embed(running[:-1:2]), embed(running[1::2])),
    }
    return found | {"like as shipped": np.array(alike)[-1], "like the others": np.array(alike).mean(0)}


def main() -> None:
    """Measure, judge and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shared", type=Path, default=Path("../shared"))
    parser.add_argument("--scores", type=Path, default=Path("scores"))
    parser.add_argument("--rows", type=int, default=500)
    parser.add_argument("--model", choices=[Path(name).name for name in MODELS], action="append")
    parser.add_argument("--tasks", type=int, default=len(TASKS))
    asked = parser.parse_args()
    data, tasks, rows = asked.shared / "data", TASKS[: asked.tasks], []
    tagged = sentences(data / "brown" / "brown.zip")[: 2 * SENTENCES]
    running = [" ".join(word for word, _ in sentence) for sentence in tagged][: 2 * asked.rows]
    (share,) = (rule.share for rule in shipped_rules() if rule.share)
    for name in MODELS:
        if asked.model and Path(name).name not in asked.model:
            continue
        given = name if name == "minilm" else str(asked.shared / name)
        with tempfile.TemporaryDirectory() as folder:
            pos = Path(folder) / "brown.jsonl"
            made = [{"tokens": [w for w, _ in s], "labels": [t[:2] for _, t in s]} for s in tagged[: asked.rows]]
            pos.write_text("\n".join(map(json.dumps, made)))
            files = [f"{task.partition(':')[0]}:{data / task.partition(':')[2]}" for task in tasks]
            evaluation = layerscope.evaluate(
                given, [*files, f"token-probe:{pos}"], asked.scores / Path(name).name, samples=asked.rows
            )
            loaded = load(given, LoadOptions())
            model = find_layers(loaded, *made_up_samples(loaded), Override(), max_length=None, prompt="")
            layers = range(1, model.stack.depth + 1)
            columns = [(layer, model.final, model.pooling[0]) for layer in layers]
            states = TextStates(model, columns, Path(folder) / "states")
            table = evaluation.table()

            def embed(texts: list[str], states: TextStates = states, columns: list = columns) -> np.ndarray:
                keys = states.keys(texts)
                return np.stack([states.vectors(keys, *column) for column in columns])

            for task in table:
                path, scores = data / str(task), 100 * table[task].loc[1:].to_numpy()
                texts = [" ".join(w for w, _ in s) for s in tagged[: asked.rows]]
                if path.is_dir():
                    frame = pd.read_csv(path / "test.csv")
                    texts = [str(text) for key in ("text", "text_a", "text_b") if key in frame for text in frame[key]]
                corpus = Corpus(str(task), "text", tuple(texts), tuple(map(str, range(len(texts)))))
                found = proxies(embed, texts[: asked.rows], corpus, running, asked.rows)
                means = {key: value.mean(0) if value.ndim == 2 else value for key, value in found.items()}
                at = {key: int(mean.argmax()) for key, mean in means.items()}
                at["half-text, clear"] = clear_maximum(found["half-text"])
                at |= {"last layer": len(scores) - 1, "fixed share": round(share * len(scores)) - 1}
                rho = {key: float(spearman(mean, scores)) for key, mean in means.items()}
                regrets = {key: scores.max() - scores[layer] for key, layer in at.items()}
                regrets["random layer"] = scores.max() - scores.mean()
                rows += [
                    {"model": loaded.name, "task": task, "rule": key, "layer": at.get(key, -1) + 1, "regret": regret,
                     "gain": scores.max() - regret - scores[-1], "rho": rho.get(key, np.nan)}
                    for key, regret in regrets.items()
                ]  # fmt: skip
                print(loaded.name, task, scores.round(1).tolist(), {k: v.round(3).tolist() for k, v in means.items()})
    frame = pd.DataFrame(rows)
    for model, own in frame.groupby("model", sort=False):
        print(f"\n## {model}: regret (layer) by task, in points\n")
        own = own.assign(cell=[f"{r.regret:.1f} ({r.layer or '–'})" for r in own.itertuples()])
        cells = own.pivot(index="rule", columns="task", values="cell")
        by = own.groupby("rule")
        cells["mean ± error over tasks"] = by["regret"].agg(lambda x: f"{x.mean():.2f} ±{x.sem():.2f}")
        cells["gain"], cells["failed"] = (
            by["gain"].mean().round(2),
            by["gain"].agg(lambda x: f"{(x < -1e-9).sum()} of {len(x)}"),
        )
        cells["Spearman with the scores"] = by["rho"].mean().round(2)
        cells = cells.loc[by["regret"].mean().sort_values().index].fillna("").reset_index()
        print(
            "\n".join(
                "| " + " | ".join(map(str, row)) + " |"
                for row in [cells.columns, ["---"] * cells.shape[1], *cells.values]
            )
        )
    models = frame.groupby(["rule", "model"])["regret"].mean().unstack()
    print(
        f"\nMean regret by model, in points; {models.shape[1]} models decide nothing.\n\n{models.round(2).to_string()}"
    )


if __name__ == "__main__":
    main()

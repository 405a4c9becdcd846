"""What MiniLM loses with two and three of its six blocks left out, before and after healing.

    python benchmarks/shrink.py --data DATA [--blocks 4 3] [--minutes 15] [--rows 700]
    [--work FOLDER]

DATA holds stsbenchmark, sts12, trec, banking77, brown and wikitext2_valid_test. Blocks
are chosen, and the model is healed, as `shrink` does it, on sentences of Brown and WikiText and on
the training texts of the tasks without their labels; of sts12 nothing is learned. Scores are of test
sets: 100 × Spearman's correlation, and the accuracy of a linear probe fitted on 2,000 training
texts; differences from the full model are paired by sample. With one thread the minutes are those of
a quiet CPU. Bars: at 4 blocks at most 1.0 point below the full model on STS-B, TREC and Banking77
and 2.0 on sts12; at 3 blocks 3.0, 2.0, 2.0 and 4.0.
"""

from __future__ import annotations

import argparse
import re
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd

from layerscope.core.margin import error_of
from layerscope.core.progress import reporting
from layerscope.healing.healing import Plan
from layerscope.healing.lessons import lessons_of
from layerscope.inputs import open_corpus
from layerscope.models import LayeredModel, LoadOptions, Override
from layerscope.shrinking.tasks import Pairs, Probe
from layerscope.truncation.expected import kept_without
from layerscope.truncation.healed import Healing, open_cut
from layerscope.truncation.pipeline import write_cut, write_healed
from layerscope.truncation.removed_blocks import Meter, greedy_removal
from layerscope.truncation.source import Source, open_source

LEARN, JUDGE = 0, 2
BARS = {
    4: {"stsbenchmark": 1.0, "sts12": 2.0, "trec": 1.0, "banking77": 1.0},
    3: {"stsbenchmark": 3.0, "sts12": 4.0, "trec": 2.0, "banking77": 2.0},
}


def brown(data: Path) -> list[str]:
    """Return the sentences of the Brown corpus, without their tags."""
    sentences = []
    archive = zipfile.ZipFile(data / "brown" / "brown.zip")
    for name in sorted(archive.namelist()):
        if not re.search(r"/c[a-r]\d\d$", name):
            continue
        for line in archive.read(name).decode("latin1").splitlines():
            words = [word.rsplit("/", 1)[0] for word in line.split()]
            sentences.append(re.sub(r" ([,.;:?!')])", r"\1", " ".join(words)))
    return [sentence for sentence in sentences if len(sentence.split()) > 3]


def wikitext(data: Path) -> list[str]:
    """Return the sentences of WikiText-2's validation and test parts."""
    folder = data / "wikitext2_valid_test"
    lines = [
        line.strip()
        for name in ("valid.txt", "test.txt")
        for line in (folder / name).read_text("utf-8").splitlines()
    ]
    text = [line for line in lines if len(line) > 40 and not line.startswith("=")]
    sentences = [part for line in text for part in re.split(r"(?<=\.) ", line)]
    return [sentence for sentence in sentences if len(sentence.split()) > 3]


def texts(data: Path, most: int) -> list[str]:
    """Return as many texts of each of the three sources, or all that it has."""
    pairs = pd.read_csv(data / "stsbenchmark" / "train.csv")
    own = [*pairs["text_a"], *pairs["text_b"]]
    for name in ("trec", "banking77"):
        own += pd.read_csv(data / name / "train.csv")["text"].tolist()
    generator = np.random.default_rng(0)
    drawn = []
    for source in (own, brown(data), wikitext(data)):
        order = generator.permutation(len(source))[:most]
        drawn += [str(source[i]) for i in order]
    return drawn


def tasks(
    data: Path, model: LayeredModel, rows: int | None, probed: int
) -> dict[str, Pairs | Probe]:
    """Return the four tasks; `rows` bounds the test samples of each, `probed` are those of a probe's training."""
    made: dict[str, Pairs | Probe] = {}
    for name in ("stsbenchmark", "sts12"):
        frame = pd.read_csv(data / name / "test.csv").dropna()[:rows]
        pairs = list(zip(frame["text_a"], frame["text_b"], strict=True))
        part, scores = np.full(len(pairs), JUDGE), frame["score"].to_numpy(float)
        made[name] = Pairs(model, "mean", pairs, part, scores=scores)
    for name in ("trec", "banking77"):
        train = pd.read_csv(data / name / "train.csv")
        train = train.sample(probed, random_state=0)
        test = pd.read_csv(data / name / "test.csv")[:rows]
        whole = pd.concat([train, test])
        part = np.repeat([LEARN, JUDGE], [len(train), len(test)])
        classes = pd.factorize(whole["label"])[0]
        samples = whole["text"].tolist()
        made[name] = Probe(model, "mean", samples, part, classes=classes)
    return made


def chosen(source: Source, samples: list[str], blocks: int) -> tuple[int, ...]:
    """Return the blocks that are kept, counted from 0."""
    meter = Meter(source.model, samples[:128], "mean", lambda steps: None)
    depth = source.model.stack.depth
    return kept_without(greedy_removal(meter, depth - blocks), depth)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--blocks", type=int, nargs="+", default=[4, 3])
    parser.add_argument("--minutes", type=float, default=15.0)
    parser.add_argument("--texts", type=int, default=20000, help="of each source")
    parser.add_argument("--rows", type=int, help="of a test set, by default all")
    parser.add_argument("--probed", type=int, default=2000)
    parser.add_argument("--work", type=Path, default=Path("shrink-benchmark"))
    options = parser.parse_args()
    data = options.data
    source = open_source("minilm", None, Override(), LoadOptions(device="cpu"))
    judges = tasks(data, source.model, options.rows, options.probed)
    lessons = lessons_of(open_corpus(texts(data, options.texts)), source.model, seed=0)
    full = {name: task.values(source.model, JUDGE) for name, task in judges.items()}
    print("full model", *(f"{name} {full[name].mean():.1f}" for name in judges))
    for blocks in options.blocks:
        kept = chosen(source, list(lessons.learn), blocks)
        room = options.work / f"blocks-{blocks}"
        (room / "plain").mkdir(parents=True, exist_ok=True)
        format = "sentence-transformers"
        write_cut(source, kept, room / "plain", format)
        healing = Healing(lessons, Plan(options.minutes), room)
        _, healed = write_healed(
            source, kept, room / "model", format, healing, reporting(True)
        )
        print(f"blocks {kept}: {healed.text}")
        for title, folder in (("cut", "plain"), ("healed", "model")):
            model = open_cut(room / folder, source).model
            for name, task in judges.items():
                values = task.values(model, JUDGE)
                lost = full[name] - values
                bar = BARS.get(blocks, {}).get(name, np.nan)
                print(
                    f"{blocks} blocks, {title:6} {name:12} {values.mean():5.1f} "
                    f"({-lost.mean():+.1f} ±{error_of(lost):.1f}, bar −{bar})",
                    flush=True,
                )


if __name__ == "__main__":
    main()

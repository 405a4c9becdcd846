"""What MiniLM loses with two of its six blocks left out: cut, healed, and trained by two other recipes in equal time.

    python benchmarks/shrink.py --data DATA [--blocks 4] [--minutes 5] [--seeds 0 1 2]
    [--rows 500] [--probed 1000] [--work FOLDER]

DATA holds stsbenchmark, sts12, trec, banking77, brown and wikitext2_valid_test. As `shrink` does
it, each task decides on its validation samples between the blocks that agree most with the full
model and the first ones, and between the model as cut and healed. sts12 is unseen: nothing of it is
learned from, and what STS-B decides holds for it. All ways learn from the same texts without labels
(those of the tasks' training parts, sentences of Brown and of WikiText), each for the same CPU
time:

- cut: the better blocks, not healed;
- shrink: healed, where that helps on the validation samples;
- distillation: the recipe of sentence-transformers: blocks evenly spread, MSELoss towards the full
  model's vectors, AdamW at 1e-4, batches of 64;
- AdaptiveLayerLoss: of MSELoss, one more layer a step, then cut to the first blocks.

Scores are of test sets: 100 × Spearman's correlation, and the accuracy of a linear probe fitted on
`--probed` training texts. Differences from the full model are paired by sample; over seeds the mean
difference and the mean standard error are printed. Bars at 4 blocks: at most 1.0 point below the
full model on STS-B, TREC and Banking77 and 2.0 on sts12. What is done lies in the work folder, and
a killed call goes on.
"""

from __future__ import annotations

import argparse
import json
import re
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.losses import (
    AdaptiveLayerLoss,
    MSELoss,
)

from layerscope.core.margin import error_of
from layerscope.core.progress import reporting
from layerscope.healing.healing import Plan
from layerscope.healing.lessons import Lessons
from layerscope.models import LayeredModel, LoadOptions, Override
from layerscope.models.lens import skipping
from layerscope.shrinking.tasks import HELD, LEARN, VALIDATION, Floats, Pairs, Probe
from layerscope.truncation.expected import kept_without
from layerscope.truncation.healed import Healing, open_cut
from layerscope.truncation.pipeline import write_cut, write_healed
from layerscope.truncation.removed_blocks import Meter, greedy_removal
from layerscope.truncation.source import Source, open_source

BARS = {"stsbenchmark": 1.0, "sts12": 2.0, "trec": 1.0, "banking77": 1.0}
FORMAT = "sentence-transformers"
CHOSEN_BY = {"sts12": "stsbenchmark"}
"""Tasks without validation samples of their own, and those whose decisions hold for them."""
VALIDATED = 300
"""Samples of a task that choose."""
RATE, BATCH = 1e-4, 64
"""Learning rate and batch size of the recipes of sentence-transformers."""
Tasks = dict[str, Pairs | Probe]


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


def tasks(data: Path, model: LayeredModel, rows: int | None, probed: int) -> Tasks:
    """Return the four tasks, with at most `rows` test samples each, and `probed` that a probe is fitted on."""
    made: Tasks = {}
    validated = min(VALIDATED, rows or VALIDATED)
    for name in ("stsbenchmark", "sts12"):
        frames = [pd.read_csv(data / name / "test.csv").dropna()[:rows]]
        if name not in CHOSEN_BY:
            dev = pd.read_csv(data / name / "dev.csv").dropna()
            frames.append(dev.sample(validated, random_state=0))
        part = np.repeat([HELD, VALIDATION][: len(frames)], [*map(len, frames)])
        frame = pd.concat(frames)
        pairs = list(zip(frame["text_a"], frame["text_b"], strict=True))
        scores = frame["score"].to_numpy(float)
        made[name] = Pairs(model, "mean", pairs, part, truth=scores)
    for name in ("trec", "banking77"):
        train = pd.read_csv(data / name / "train.csv")
        train = train.sample(probed + validated, random_state=0)
        test = pd.read_csv(data / name / "test.csv")[:rows]
        whole = pd.concat([train, test])
        part = np.repeat([LEARN, VALIDATION, HELD], [probed, validated, len(test)])
        classes = pd.factorize(whole["label"])[0]
        samples = whole["text"].tolist()
        made[name] = Probe(model, "mean", samples, part, truth=classes)
    return made


def lessons_of(data: Path, judges: Tasks, most: int, seed: int) -> Lessons:
    """Return what is learned from: as many texts of each of three sources, none that chooses or judges."""
    pairs = pd.read_csv(data / "stsbenchmark" / "train.csv")
    own = [*pairs["text_a"], *pairs["text_b"]]
    for name in ("trec", "banking77"):
        own += pd.read_csv(data / name / "train.csv")["text"].tolist()
    apart = {
        text
        for task in judges.values()
        for part in (VALIDATION, HELD)
        for text in task.texts(part)
    }
    generator = np.random.default_rng(seed)
    drawn: list[str] = []
    for source in (own, brown(data), wikitext(data)):
        texts = [text for text in map(str, source) if text not in apart]
        drawn += [texts[i] for i in generator.permutation(len(texts))[:most]]
    drawn = list(dict.fromkeys(drawn))
    order = generator.permutation(len(drawn))
    apart_from_it = min(300, len(drawn) // 4)
    ends = [len(drawn) - 2 * apart_from_it, len(drawn) - apart_from_it]
    learn, *others = np.split(order, ends)
    return Lessons(*([drawn[i] for i in rows] for rows in (learn, *others)))


def chosen(source: Source, samples: list[str], blocks: int) -> tuple[int, ...]:
    """Return the blocks that agree most with the full model, counted from 0."""
    meter = Meter(source.model, samples[:128], "mean", lambda steps: None)
    depth = source.model.stack.depth
    return kept_without(greedy_removal(meter, depth - blocks), depth)


def trained(
    source: Source,
    folder: Path,
    student: SentenceTransformer,
    loss: torch.nn.Module,
    texts: list[str],
    minutes: float,
    seed: int,
) -> int:
    """Train a student on the full model's vectors for some CPU time, and save it; return the steps."""
    write_cut(source, range(source.model.stack.depth), folder, FORMAT)
    teacher = SentenceTransformer(str(folder), device="cpu")
    weights = list(student.parameters())
    optimizer = torch.optim.AdamW(weights, lr=RATE)
    generator = np.random.default_rng(seed)
    start, step, share = time.process_time(), 0, 0.0
    torch.manual_seed(seed)
    student.train()
    while share < 1:
        rows = generator.permutation(len(texts))
        for first in range(0, len(rows), BATCH):
            share = (time.process_time() - start) / (60 * minutes)
            if share >= 1:
                break
            batch = [texts[row] for row in rows[first : first + BATCH]]
            vectors = teacher.encode(
                batch, convert_to_tensor=True, show_progress_bar=False
            )
            optimizer.param_groups[0]["lr"] = RATE * min(share / 0.1, (1 - share) / 0.9)
            optimizer.zero_grad()
            loss([student.preprocess(batch)], vectors.clone()).backward()
            torch.nn.utils.clip_grad_norm_(weights, 1.0)
            optimizer.step()
            step += 1
    student.eval().save_pretrained(str(folder))
    return step


def rivals(
    source: Source, lessons: Lessons, blocks: int, minutes: float, seed: int, room: Path
) -> dict[str, Callable[[], Path]]:
    """Return the makers of the models of other recipes, each of which returns its folder."""
    depth = source.model.stack.depth
    spread = np.unique(np.linspace(0, depth - 1, blocks).round().astype(int)).tolist()

    def distilled() -> Path:
        write_cut(source, spread, room / "spread", FORMAT)
        student = SentenceTransformer(str(room / "spread"), device="cpu")
        folder = room / "distillation"
        texts = list(lessons.learn)
        loss = MSELoss(student)
        steps = trained(source, folder, student, loss, texts, minutes, seed)
        print(f"distillation of blocks {spread}: {steps} steps", flush=True)
        return folder

    def adaptive() -> Path:
        write_cut(source, range(depth), room / "whole", FORMAT)
        student = SentenceTransformer(str(room / "whole"), device="cpu")
        folder = room / "adaptive-whole"
        texts = list(lessons.learn)
        loss = AdaptiveLayerLoss(student, MSELoss(student))
        steps = trained(source, folder, student, loss, texts, minutes, seed)
        print(f"AdaptiveLayerLoss: {steps} steps", flush=True)
        whole = open_source(folder, None, Override(), LoadOptions(device="cpu"))
        write_cut(whole, range(blocks), room / "adaptive", FORMAT)
        return room / "adaptive"

    return {"distillation": distilled, "AdaptiveLayerLoss": adaptive}


class Judge:
    """The scores of the models of one seed, kept as files in its folder."""

    def __init__(self, source: Source, judges: Tasks, room: Path) -> None:
        self.source, self.judges, self.room = source, judges, room
        self.full = self.of(source.model, "full")

    def of(self, model: LayeredModel, name: str) -> dict[str, dict[int, Floats]]:
        """Return the values of a model on the parts that choose and judge, by task."""
        path = self.room / f"{name}.json"
        if not path.is_file():
            values: dict[str, Any] = {
                task: {
                    part: judge.values(model, part).tolist()
                    for part in (VALIDATION, HELD)
                    if part == HELD or task not in CHOSEN_BY
                }
                for task, judge in self.judges.items()
            }
            path.write_text(json.dumps(values), "utf-8")
        read = json.loads(path.read_text("utf-8"))
        return {
            task: {int(part): np.array(of) for part, of in parts.items()}
            for task, parts in read.items()
        }

    def without(self, kept: tuple[int, ...]) -> dict[str, dict[int, Floats]]:
        """Return the values of the model as cut."""
        model, stack = self.source.model, self.source.model.stack
        left_out = {block + 1 for block in range(stack.depth) if block not in kept}
        with skipping(model.module, stack, left_out):
            return self.of(model, "cut-" + "".join(map(str, kept)))

    def lost(
        self, values: dict[str, dict[int, Floats]], task: str, part: int
    ) -> Floats:
        """Return the loss of each sample; of a task without validation samples that of another."""
        if part == VALIDATION:
            task = CHOSEN_BY.get(task, task)
        return self.full[task][part] - values[task][part]


def one_seed(
    source: Source, judges: Tasks, options: argparse.Namespace, seed: int
) -> pd.DataFrame:
    """Return the loss and its error of each way on each task, for one seed."""
    room = options.work / f"blocks-{options.blocks}-seed-{seed}"
    room.mkdir(parents=True, exist_ok=True)
    lessons = lessons_of(options.data, judges, options.texts, seed)
    judge = Judge(source, judges, room)
    agreeing = chosen(source, list(lessons.learn), options.blocks)
    sets = [agreeing, tuple(range(options.blocks))]
    cuts = {kept: judge.without(kept) for kept in sets}
    rows = []

    def judged(way: str, task: str, values: Any, note: str) -> None:
        lost = judge.lost(values, task, HELD)
        rows.append((way, task, lost.mean(), error_of(lost), note))
        print(
            f"seed {seed} {way:17} {task:12} {-lost.mean():+.1f} ±{error_of(lost):.1f} {note}",
            flush=True,
        )

    for task in judges:
        kept = min(
            sets, key=lambda each: judge.lost(cuts[each], task, VALIDATION).mean()
        )
        values, note = cuts[kept], f"blocks {kept}"
        judged("cut", task, values, note)
        cut_loss = judge.lost(values, task, VALIDATION).mean()
        if cut_loss > 0:
            better = healed(source, judge, lessons, kept, options.minutes, seed)
            if judge.lost(better, task, VALIDATION).mean() <= cut_loss:
                values, note = better, f"{note}, healed"
        judged("shrink", task, values, note)
    makers = rivals(source, lessons, options.blocks, options.minutes, seed, room)
    for way, make in makers.items():
        if not (room / f"{way}.json").is_file():
            judge.of(open_cut(make(), source).model, way)
        values = judge.of(source.model, way)
        for task in judges:
            judged(way, task, values, "")
    return pd.DataFrame(rows, columns=["way", "task", "loss", "error", "note"])


def healed(
    source: Source,
    judge: Judge,
    lessons: Lessons,
    kept: tuple[int, ...],
    minutes: float,
    seed: int,
) -> dict[str, dict[int, Floats]]:
    """Return the values of a healed model; it is made once."""
    name = "healed-" + "".join(map(str, kept))
    if not (judge.room / f"{name}.json").is_file():
        work = judge.room / name
        work.mkdir(exist_ok=True)
        healing = Healing(lessons, Plan(minutes, seed=seed), work)
        _, change = write_healed(
            source, kept, work / "model", FORMAT, healing, reporting(True)
        )
        print(f"blocks {kept}: {change}", flush=True)
        judge.of(open_cut(work / "model", source).model, name)
    return judge.of(source.model, name)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--blocks", type=int, default=4)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--texts", type=int, default=20000, help="of each source")
    parser.add_argument("--rows", type=int, help="of a test set, by default all")
    parser.add_argument("--probed", type=int, default=2000)
    parser.add_argument("--tasks", nargs="+", default=list(BARS))
    parser.add_argument("--work", type=Path, default=Path("shrink-benchmark"))
    options = parser.parse_args()
    source = open_source("minilm", None, Override(), LoadOptions(device="cpu"))
    judges = tasks(options.data, source.model, options.rows, options.probed)
    judges = {name: judges[name] for name in options.tasks}
    seeds = [one_seed(source, judges, options, seed) for seed in options.seeds]
    table = pd.concat(seeds).groupby(["way", "task"], sort=False)[["loss", "error"]]
    mean = table.mean().round(1)
    print(f"\nmean over seeds {options.seeds}, points lost; bars {BARS}")
    print(mean.unstack("task").to_string())


if __name__ == "__main__":
    main()

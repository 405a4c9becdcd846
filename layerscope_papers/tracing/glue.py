"""Aligned training of a text classifier raises the accuracy of every layer (figures 8 and 21)."""

from dataclasses import dataclass, field
from itertools import product
from operator import sub
from pathlib import Path

import pandas as pd

from layerscope.inputs import Corpus
from layerscope.runs import open_run
from layerscope_papers import drawing
from layerscope_papers.assets import Asset, Assets
from layerscope_papers.intervals import at_last, before_last
from layerscope_papers.recipe import Evidence, Number, recipe

TEXTS = ("text", "text_a", "text_b")
BETWEEN = " [SEP] "
"""What stands between the two texts of a pair, which BERT's tokenizers read as their separator."""


@dataclass(frozen=True)
class Glue:
    """One scale: the model that is tuned, on which tasks, and how.

    Attributes:
        model: the encoder that is tuned.
        tasks: names of the tasks, which are also those of their folders.
        learning_rate: highest of the schedule.
        max_length: tokens of a text, at most.
        most: texts that are learnt from and judged on, at most.
        seeds: models of each task and objective.

    """

    model: str
    tasks: tuple[str, ...]
    learning_rate: float
    max_length: int
    most: int
    seeds: int = field(default=3, repr=False)


SMALL = Glue("minilm", ("sst2", "mrpc", "rte"), 2e-4, 64, 640, seeds=4)
"""Tuned on few texts, in few steps, and so at a higher rate than BERT."""
TASKS = ("sst2", "mrpc", "qnli", "mnli", "rte", "qqp")
PAPER = Glue("bert-base-uncased", TASKS, 2e-5, 256, 400_000)


@dataclass(frozen=True)
class Tuned(Asset):
    """A text classifier, tuned on a task of GLUE with an objective and a seed."""

    setup: Glue
    task: str
    seed: int
    objective: str
    minutes = 1.5
    named = "{objective} {task} seed {seed}"

    def make(self, out: Path, assets: Assets) -> None:
        """Tune it, from its last checkpoint where there is one."""
        from layerscope import train

        setup = self.setup
        folder = (assets.data or Path()) / self.task
        train(
            setup.model,
            texts(folder / "train.csv", setup.most),
            texts(folder / "dev.csv", setup.most),
            out=out,
            head="own",
            epochs=3,
            batch_size=32,
            objective=self.objective,
            seed=self.seed,
            learning_rate=setup.learning_rate,
            max_length=setup.max_length,
            progress=False,
        )


def texts(path: Path, most: int) -> Corpus:
    """Return the labelled texts of a CSV file, pairs as one text; of more than `most` a sample, the same each time."""
    table = pd.read_csv(path, keep_default_na=False)
    table = table.sample(min(most, len(table)), random_state=0)
    columns = table[table.columns.intersection(TEXTS)].astype(str)
    joined = columns.agg(BETWEEN.join, axis=1).tolist()
    names = tuple(map(str, table.index))
    return Corpus(path.parent.name, "text", joined, names, table["label"].tolist())


def models(setup: Glue, objective: str) -> list[Tuned]:
    """Return the models of all tasks and seeds."""
    each = product(setup.tasks, range(setup.seeds))
    return [Tuned(setup, task, seed, objective) for task, seed in each]


@recipe(
    "T-fig8",
    scales={"small": SMALL, "paper": PAPER},
    needs=lambda setup: [*models(setup, "standard"), *models(setup, "aligned")],
    local=lambda setup: setup.tasks,
)
def every_layer_of_a_classifier(assets: Assets) -> Evidence:
    """Compare both trainings task by task and seed by seed, before the last layer and at it."""
    setup: Glue = assets.settings
    by_training = {}
    for objective in ("standard", "aligned"):
        by_training[objective] = [
            _accuracy(assets, model) for model in models(setup, objective)
        ]
    gains = list(map(sub, by_training["aligned"], by_training["standard"]))
    numbers = []
    for position, task in enumerate(setup.tasks):
        start = position * setup.seeds
        gain = before_last(gains[start : start + setup.seeds])
        numbers.append(Number.of(f"gain before the last layer, {task} [points]", gain))
    return Evidence(
        {"earlier": before_last(gains), "last": at_last(gains)},
        numbers,
        [drawing.mean_chart("Accuracy by layer, all tasks", "%", by_training)],
    )


def _accuracy(assets: Assets, model: Tuned) -> pd.Series:
    """Return the accuracy of each layer on the texts held out, percent."""
    history = open_run(assets.get(model) / "history")
    return 100 * history.metric("layer_accuracy").loc[1:]

"""Probes as they are named, `KIND:PATH`, with the labelled data that the path holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from layerscope.core.errors import LayerscopeError, choices
from layerscope.evaluation.own_tasks import COLUMNS, check_samples, is_task_file
from layerscope.evaluation.probing.tagged import Tagged, read_tagged
from layerscope.inputs import Corpus, draw, open_corpus

PROBES = {
    "linear-probe": "linear probe", "knn-probe": "kNN probe", "attention-probe": "attention probe",
    "token-probe": "token probe",
}  # fmt: skip
"""Kinds of probes, and what each is called beside the name of its data."""
FEWEST = 5
"""Samples that a class needs."""


@dataclass(frozen=True)
class ProbeTask:
    """One probe: its kind, and its labelled samples, or for a token probe its tagged sentences."""

    kind: str
    data: Corpus | Tagged

    @property
    def name(self) -> str:
        """What the task is called in tables."""
        return f"{self.data.name} ({PROBES[self.kind]})"


def split_tasks(tasks: Any) -> tuple[list[str], list[Any]]:
    """Return the texts that name probes, and all other tasks; `KIND:PATH` of no known kind is an error."""
    given: Iterable[Any] = [tasks] if isinstance(tasks, str) or not isinstance(tasks, Iterable) else tasks
    probes: list[str] = []
    others: list[Any] = []
    for task in given:
        kind = task.partition(":")[0] if isinstance(task, str) and is_task_file(task) else None
        if kind is not None and kind not in PROBES and kind not in COLUMNS:
            raise LayerscopeError(f"task kind {kind!r} does not exist{choices(kind, [*COLUMNS, *PROBES])}")
        (probes if kind in PROBES else others).append(task)
    return probes, others


def open_probes(named: Sequence[str], samples: int | None, seed: int) -> list[ProbeTask]:
    """Return the probes that `KIND:PATH` texts name, with their data; of each file `samples` seeded ones.

    Raises `LayerscopeError` for data without labels, or with too few of them, and for two probes of one name.
    """
    check_samples(samples)
    tasks: list[ProbeTask] = []
    opened: dict[str, Corpus] = {}
    for text in named:
        kind, _, path = text.partition(":")
        data: Corpus | Tagged
        if kind == "token-probe":
            data = read_tagged(path, samples, seed)
        else:
            data = opened[path] = opened.get(path) or _labelled(path, samples, seed)
        task = ProbeTask(kind, data)
        if task.name in (other.name for other in tasks):
            raise LayerscopeError(f"two tasks have the name {task.name!r}: leave one, or rename its file")
        tasks.append(task)
    return tasks


def _labelled(path: str, samples: int | None, seed: int) -> Corpus:
    corpus = open_corpus(path)
    if corpus.labels is None:
        raise LayerscopeError(
            f"{path} has no labels to probe: give a column label, or of images and sounds a sub-folder for each class"
        )
    corpus = draw(corpus, samples, seed)
    sizes = Counter(corpus.labels)
    if len(sizes) < 2:
        raise LayerscopeError(f"{path}: every sample has the label {next(iter(sizes))!r}: give two classes or more")
    if sum(size >= FEWEST for size in sizes.values()) < 2:
        raise LayerscopeError(f"{path}: fewer than 2 classes have {FEWEST} samples: give more of each")
    return corpus

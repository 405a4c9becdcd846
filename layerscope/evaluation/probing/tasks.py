"""Probes as they are named, `KIND:PATH`, with the labelled data that the path holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
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


Own = tuple[str, Any]
"""A kind of task, and its data: a path, or what is in memory."""


def split_tasks(tasks: Any) -> tuple[list[Own], list[Any]]:
    """Return kind and data of each probe, and all other tasks, those of own data as kind and data too.

    Own data are given as `KIND:PATH`, or as a mapping from kinds to data; an unknown kind is an error.
    """
    whole = isinstance(tasks, (str, Mapping)) or not isinstance(tasks, Iterable)
    probes: list[Own] = []
    others: list[Any] = []
    for task in [tasks] if whole else tasks:
        if not isinstance(task, Mapping) and not (isinstance(task, str) and is_task_file(task)):
            others.append(task)
            continue
        for kind, data in task.items() if isinstance(task, Mapping) else [task.split(":", 1)]:
            if kind not in PROBES and kind not in COLUMNS:
                raise LayerscopeError(f"task kind {kind!r} does not exist{choices(str(kind), [*COLUMNS, *PROBES])}")
            (probes if kind in PROBES else others).append((kind, data))
    return probes, others


def open_probes(named: Sequence[Own], samples: int | None, seed: int) -> list[ProbeTask]:
    """Return the probes of these kinds and data, of each data set `samples` seeded ones.

    Raises `LayerscopeError` for data without labels, or with too few of them, and for two probes of one name.
    """
    check_samples(samples)
    tasks: list[ProbeTask] = []
    opened: dict[Any, Corpus] = {}
    for kind, given in named:
        data: Corpus | Tagged
        if kind == "token-probe":
            data = read_tagged(given, samples, seed)
        else:
            key = given if isinstance(given, str) else id(given)
            data = opened[key] = opened.get(key) or _labelled(given, samples, seed)
        task = ProbeTask(kind, data)
        if task.name in (other.name for other in tasks):
            raise LayerscopeError(f"two tasks have the name {task.name!r}: leave one, or rename its file")
        tasks.append(task)
    return tasks


def _labelled(given: Any, samples: int | None, seed: int) -> Corpus:
    corpus = open_corpus(given)
    path = given if isinstance(given, (str, Path)) else f"the data of {corpus.name}"
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

"""Tasks as they are named: mteb's by name, mteb's as objects, and own files."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from layerscope.core.errors import LayerscopeError, near
from layerscope.evaluation.own_tasks import COLUMNS, is_task_file, task_from_file

LAYER_BY_LAYER = "layer-by-layer"
PAPER_TASKS = (
    "AmazonCounterfactualClassification", "AmazonReviewsClassification", "ArxivClusteringS2S", "AskUbuntuDupQuestions",
    "BIOSSES", "Banking77Classification", "BiorxivClusteringS2S", "EmotionClassification", "MTOPDomainClassification",
    "MTOPIntentClassification", "MassiveIntentClassification", "MassiveScenarioClassification", "MedrxivClusteringS2S",
    "MindSmallReranking", "RedditClustering", "SICK-R", "STS12", "STS13", "STS14", "STS15", "STS16", "STS17",
    "STSBenchmark", "SciDocsRR", "SprintDuplicateQuestions", "StackExchangeClustering", "StackOverflowDupQuestions",
    "ToxicConversationsClassification", "TweetSentimentExtractionClassification", "TwentyNewsgroupsClustering",
    "TwitterSemEval2015", "TwitterURLCorpus",
)  # fmt: skip
"""The tasks of `layer-by-layer`: Skean et al., Layer by Layer (ICML 2025), English test sets."""
ENGLISH = {"STS17": ["en-en"]}
"""Subsets of tasks that pair English with other languages."""


def open_tasks(tasks: Any, samples: int | None = None, seed: int = 0) -> list[Any]:
    """Return mteb tasks, without the data of mteb's own; an aggregate becomes its tasks.

    `tasks` is a list of mteb names, mteb task objects, `KIND:PATH` texts and (kind, data); a single one may stand
    alone. The name `layer-by-layer` stands for `PAPER_TASKS`. Raises `LayerscopeError` for a task that does not exist,
    with the near name, for one that reads no texts, and for two of one name.
    """
    _need_mteb()
    given: Iterable[Any] = [tasks] if isinstance(tasks, str) or hasattr(tasks, "metadata") else tasks
    found = [part for task in given for one in _named(task) for part in _parts(_opened(one, samples, seed))]
    if not found:
        raise LayerscopeError("no task is named: give names of mteb, such as STSBenchmark, or classification:FILE.csv")
    names = [task.metadata.name for task in found]
    for task, name in zip(found, names, strict=True):
        if names.count(name) > 1:
            raise LayerscopeError(f"two tasks have the name {name!r}: leave one, or rename its file")
        if list(task.metadata.modalities) != ["text"]:
            raise LayerscopeError(f"task {name} reads {', '.join(task.metadata.modalities)}: evaluate takes texts")
    return found


def _need_mteb() -> None:
    try:
        import mteb  # noqa: F401
    except ImportError:
        raise LayerscopeError("evaluate needs mteb: pip install 'layerscope[evaluation]'") from None


def _named(task: Any) -> list[Any]:
    """Return the tasks of the paper for their common name, else the task alone."""
    if not isinstance(task, str) or task.strip() != LAYER_BY_LAYER:
        return [task]
    import mteb

    # subsets that are named go before languages, of which STS17 has English in many a pair
    return [
        mteb.get_task(name, languages=["eng"], eval_splits=["test"], hf_subsets=ENGLISH.get(name))
        for name in PAPER_TASKS
    ]


def _opened(task: Any, samples: int | None, seed: int) -> Any:
    if isinstance(task, tuple):
        return task_from_file(task[0], task[1], samples, seed)
    if not isinstance(task, str):
        if not hasattr(task, "metadata") or not hasattr(task, "load_data"):
            raise LayerscopeError(f"a task is a name, KIND:PATH or a task of mteb, not a {type(task).__name__}")
        return task
    if is_task_file(task):
        kind, _, path = task.partition(":")
        return task_from_file(kind, path, samples, seed)
    return _by_name(task.strip())


def _by_name(name: str) -> Any:
    import mteb

    try:
        return mteb.get_task(name)
    except KeyError:
        known = [LAYER_BY_LAYER, *(task.metadata.name for task in mteb.get_tasks(exclude_superseded=False))]
        hint = near(name, known) or f": give a name of mteb, or KIND:FILE ({', '.join(COLUMNS)})"
        raise LayerscopeError(f"task {name!r} does not exist in mteb{hint}") from None


def _parts(task: Any) -> list[Any]:
    return list(task.tasks) if hasattr(task, "taskname_to_task") else [task]

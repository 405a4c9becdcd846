"""Tasks as they are named: mteb's by name, mteb's as objects, and your own data by their kind."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from layerscope.core.errors import LayerscopeError, choices, near
from layerscope.evaluation.kind import ProbeTask
from layerscope.evaluation.kinds import FILES, PROBES
from layerscope.evaluation.own_tasks import task_from_file

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


def open_tasks(tasks: Any, samples: int | None = None, seed: int = 0) -> tuple[list[Any], list[ProbeTask]]:
    """Return mteb tasks, without the data of mteb's own, and probes, each with its data.

    `tasks` is a list of mteb names, mteb task objects, `KIND:PATH` texts and mappings from kinds to data; a single one
    may stand alone. The name `layer-by-layer` stands for `PAPER_TASKS`, and an aggregate for its tasks; of each data
    set `samples` seeded rows are taken. Raises `LayerscopeError` for a task that does not exist, for one of
    mteb that reads no texts, and for two of one name.
    """
    whole = isinstance(tasks, (str, Mapping)) or hasattr(tasks, "metadata") or not isinstance(tasks, Iterable)
    found: list[Any] = []
    probes: list[ProbeTask] = []
    opened: dict[Any, Any] = {}
    for task in [tasks] if whole else tasks:
        if not isinstance(task, Mapping) and not _is_own(task):
            found += _of_mteb(task)
            continue
        for name, data in task.items() if isinstance(task, Mapping) else [task.split(":", 1)]:
            if name in FILES:
                _need_mteb()
                found.append(task_from_file(name, data, samples, seed))
            elif name in PROBES:
                read = PROBES[name].states.read  # linear and kNN probe of the same data share them, and their states
                key = read, data if isinstance(data, str) else id(data)
                opened[key] = opened.get(key) or read(data, samples, seed)
                probes.append(ProbeTask(PROBES[name], opened[key]))
            else:
                raise LayerscopeError(f"task kind {name!r} does not exist{choices(str(name), [*FILES, *PROBES])}")
    if not found and not probes:
        raise LayerscopeError("no task is named: give names of mteb, such as STSBenchmark, or classification:FILE.csv")
    names = [*(task.metadata.name for task in found), *(probe.name for probe in probes)]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise LayerscopeError(f"two tasks have the name {twice!r}: leave one, or rename its file")
    return found, probes


def _is_own(task: Any) -> bool:
    """Return whether a task is `KIND:PATH`, by what stands before its colon."""
    kind, colon, path = task.partition(":") if isinstance(task, str) else ("", "", "")
    return bool(colon and path and ("-" in kind or kind.islower()))


def _of_mteb(task: Any) -> Iterator[Any]:
    """Yield the tasks of mteb that a name or object stands for."""
    _need_mteb()
    if isinstance(task, str):
        named = _by_name(task.strip())
    elif hasattr(task, "metadata") and hasattr(task, "load_data"):
        named = [task]
    else:
        raise LayerscopeError(f"a task is a name, KIND:PATH or a task of mteb, not a {type(task).__name__}")
    for one in named:
        for part in one.tasks if hasattr(one, "taskname_to_task") else [one]:
            if list(part.metadata.modalities) != ["text"]:
                reads = ", ".join(part.metadata.modalities)
                raise LayerscopeError(f"task {part.metadata.name} reads {reads}: evaluate takes tasks of texts")
            yield part


def _by_name(name: str) -> list[Any]:
    import mteb

    if name == LAYER_BY_LAYER:
        # subsets that are named go before languages, of which STS17 has English in many a pair
        return [
            mteb.get_task(name, languages=["eng"], eval_splits=["test"], hf_subsets=ENGLISH.get(name))
            for name in PAPER_TASKS
        ]
    try:
        return [mteb.get_task(name)]
    except KeyError:
        known = [LAYER_BY_LAYER, *(task.metadata.name for task in mteb.get_tasks(exclude_superseded=False))]
        hint = near(name, known) or f": give a name of mteb, or KIND:FILE ({', '.join(FILES)})"
        raise LayerscopeError(f"task {name!r} does not exist in mteb{hint}") from None


def _need_mteb() -> None:
    try:
        import mteb  # noqa: F401
    except ImportError:
        raise LayerscopeError("evaluate needs mteb: pip install 'layerscope[evaluation]'") from None

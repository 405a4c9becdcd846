"""Tasks as they are named: mteb's by name, mteb's as objects, and your own data by their kind."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from layerscope.core import LayerscopeError, near, require
from layerscope.evaluation.kinds import kind_names, kind_of
from layerscope.evaluation.probe_tasks import Draw, ProbeTask

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


def open_tasks(
    tasks: Any,
    samples: int | None = None,
    seed: int = 0,
    shift: Any = None,
) -> tuple[list[Any], list[ProbeTask]]:
    """Return mteb tasks, without the data of mteb's own, and probes, each with its data.

    `tasks` is a list of mteb names, mteb task objects, `KIND:PATH` texts and mappings from kinds to
    data; a single one may stand alone. The name `layer-by-layer` stands for `PAPER_TASKS`, and an
    aggregate for its tasks; for the others see `Draw`. Raises `LayerscopeError` for a task that
    does not exist, for one of mteb whose inputs no encoder takes, and for two of one name.
    """
    alone = isinstance(tasks, (str, Mapping)) or hasattr(tasks, "metadata")
    if alone or not isinstance(tasks, Iterable):
        tasks = [tasks]
    draw = Draw(samples, seed, shift)
    judged_by_mteb: list[Any] = []
    probes: list[ProbeTask] = []
    for task in tasks:
        data_by_kind = _with_kinds(task)
        if not data_by_kind:
            judged_by_mteb += _of_mteb(task)
        for kind, data in data_by_kind.items():
            for opened in kind_of(kind).open(data, draw):
                if isinstance(opened, ProbeTask):
                    probes.append(opened)
                else:
                    judged_by_mteb.append(opened)
    _refuse(judged_by_mteb, probes, draw)
    return judged_by_mteb, probes


def _with_kinds(task: Any) -> Mapping[str, Any]:
    """Return data by their kind, of `KIND:PATH` or a mapping; empty for a task of mteb."""
    if isinstance(task, Mapping):
        return task
    if isinstance(task, str):
        kind, _, path = task.partition(":")
        if path:
            return {kind: path}
    return {}


def _refuse(
    judged_by_mteb: Sequence[Any], probes: Sequence[ProbeTask], draw: Draw
) -> None:
    """Raise for tasks that cannot be evaluated together."""
    if not judged_by_mteb and not probes:
        raise LayerscopeError(
            "no task is named: give names of mteb, such as STSBenchmark, or classification:FILE.csv"
        )
    by_mteb = [task.metadata.name for task in judged_by_mteb]
    unshifted = by_mteb + [probe.name for probe in probes if not probe.kind.takes_shift]
    if draw.shift is not None and unshifted:
        raise LayerscopeError(
            f"`shift` applies only to a linear-probe, not to {unshifted[0]}: evaluate that by itself"
        )
    names = [*by_mteb, *(probe.name for probe in probes)]
    for name in names:
        if names.count(name) > 1:
            raise LayerscopeError(
                f"two tasks have the name {name!r}: leave one out, or rename its file"
            )


def _of_mteb(task: Any) -> Iterator[Any]:
    """Yield the tasks of mteb that a name or object stands for; raises for one that does not read texts alone."""
    require("evaluation", "a task of mteb")
    if isinstance(task, str):
        named = _by_name(task.strip())
    elif hasattr(task, "metadata") and hasattr(task, "load_data"):
        named = [task]
    else:
        raise LayerscopeError(
            f"a task is a name, KIND:PATH or a task of mteb, not a {type(task).__name__}"
        )
    for one in named:
        parts = [one]
        if hasattr(one, "taskname_to_task"):
            parts = one.tasks
        for part in parts:
            about = part.metadata
            if about.modalities != ["text"]:
                reads = " and ".join(about.modalities)
                raise LayerscopeError(
                    f"task {about.name} reads {reads}: evaluate takes tasks of mteb on texts, and of others probes, "
                    "such as linear-probe:FOLDER"
                )
            yield part


def _by_name(name: str) -> list[Any]:
    """Return the tasks that a name of mteb stands for."""
    import mteb

    if name == LAYER_BY_LAYER:
        # subsets that are named go before languages, of which STS17 has English in many a pair
        return [
            mteb.get_task(
                name,
                languages=["eng"],
                eval_splits=["test"],
                hf_subsets=ENGLISH.get(name),
            )
            for name in PAPER_TASKS
        ]
    try:
        return [mteb.get_task(name)]
    except KeyError:
        tasks = mteb.get_tasks(exclude_superseded=False)
        names = [LAYER_BY_LAYER, *(task.metadata.name for task in tasks)]
        mend = f": give a name of mteb, or KIND:FILE ({', '.join(kind_names())})"
        hint = near(name, names) or mend
        raise LayerscopeError(f"task {name!r} does not exist in mteb{hint}") from None

"""Tasks as they are named: mteb's by name, mteb's as objects, and your own data by their kind."""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd

from layerscope.core.errors import LayerscopeError, choices, listed, near
from layerscope.core.extras import require
from layerscope.core.files import existing
from layerscope.core.option_kinds import SEED, Whole
from layerscope.core.options import checked
from layerscope.evaluation.kinds import FILES, FileKind, Splits
from layerscope.evaluation.probe_states import PROBES, ProbeTask, labelled
from layerscope.inputs.corpus import Corpus
from layerscope.inputs.tables import is_a, is_frame, table_of, table_suffix
from layerscope.probes.attention import validation
from layerscope.scores.files import refuse_columns, refuse_rows

LAYER_BY_LAYER = "layer-by-layer"
READ = ("text", "image", "audio")
"""Modalities of mteb's tasks that models are run on."""
LM = "lm"
"""The kind of tasks that lm-evaluation-harness knows by name, or reads from a file."""
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
    split: float | None = None,
    shift: Any = None,
) -> tuple[list[Any], list[ProbeTask]]:
    """Return mteb tasks, without the data of mteb's own, and probes, each with its data.

    `tasks` is a list of mteb names, mteb task objects, `KIND:PATH` texts and mappings from kinds to
    data; a single one may stand alone. The name `layer-by-layer` stands for `PAPER_TASKS`, and an
    aggregate for its tasks; of each data set `samples` seeded rows are taken; an attention probe is
    judged on the share `split` of them, and a linear probe also, as a task of its own, on the data
    `shift`. Raises `LayerscopeError` for a task that does not exist, for one of mteb whose inputs
    no encoder takes, and for two of one name.
    """
    whole = (
        isinstance(tasks, (str, Mapping))
        or hasattr(tasks, "metadata")
        or not isinstance(tasks, Iterable)
    )
    found: list[Any] = []
    probes: list[ProbeTask] = []
    opened: dict[Any, Any] = {}
    for task in [tasks] if whole else tasks:
        if isinstance(task, Mapping):
            own = list(task.items())
        else:
            kind, _, path = task.partition(":") if isinstance(task, str) else ("", "", "")
            own = [(kind, path)] if path and ("-" in kind or kind.islower()) else []
            found += [] if own else _of_mteb(task)
        for name, data in own:
            if name in FILES:
                require("evaluation", f"a task of the kind {name}")
                found.append(task_from_file(name, data, samples, seed))
            elif name in (*PROBES, LM):
                probes += _probes(name, data, opened, samples, seed, split, shift)
            else:
                raise LayerscopeError(
                    f"task kind {name!r} does not exist{choices(str(name), [*FILES, *PROBES, LM])}"
                )
    if not found and not probes:
        raise LayerscopeError(
            "no task is named: give names of mteb, such as STSBenchmark, or classification:FILE.csv"
        )
    if split is not None and not any(probe.split for probe in probes):
        raise LayerscopeError(
            "`split` applies only to an attention-probe, and none is among the tasks: leave it out"
        )
    names = [*(task.metadata.name for task in found), *(probe.name for probe in probes)]
    others = names[: len(found)] + [
        probe.name for probe in probes if probe.kind is not PROBES["linear-probe"]
    ]
    if shift is not None and others:
        raise LayerscopeError(
            f"`shift` applies only to a linear-probe, not to {others[0]}: evaluate that by itself"
        )
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise LayerscopeError(
            f"two tasks have the name {twice!r}: leave one out, or rename its file"
        )
    return found, probes


def _probes(
    name: str,
    data: Any,
    opened: dict[Any, Any],
    samples: int | None,
    seed: int,
    split: float | None,
    shift: Any,
) -> list[ProbeTask]:
    """Return the probe of a kind, under a shift too, or the tasks that lm-evaluation-harness has for a name or file."""
    if name == LM:
        require("lm-eval", "a task of lm-evaluation-harness")
        from layerscope.evaluation.lm_tasks import open_lm_tasks  # it takes seconds to import

        return open_lm_tasks(data, samples, seed)
    read = PROBES[
        name
    ].states.read  # linear and kNN probe of the same data share them, and their states
    files = _train_and_test_files(data) if name == "linear-probe" else ()
    if files and shift is not None:
        raise LayerscopeError(f"{data} has a test file, which judges its probes: leave `shift` out")
    fitted, shift = files or (data, shift)
    key = read, fitted if isinstance(fitted, (str, Path)) else id(fitted)
    opened[key] = opened.get(key) or read(fitted, samples, seed)
    if files:
        opened[key] = replace(opened[key], name=_name(Path(data)))
    own_split = split if name == "attention-probe" else None
    if own_split is not None:  # refused before the model runs
        validation(np.unique(opened[key].labels, return_inverse=True)[1], own_split, seed)
    own = [ProbeTask(PROBES[name], opened[key], own_split)]
    if shift is not None and name == "linear-probe":
        whole = (
            opened[key] if samples is None else read(fitted, None, seed)
        )  # a draw may lack a label of its file
        own.append(replace(own[0], shift=_shifted(shift, opened[key], whole, samples, seed)))
    return own


def _train_and_test_files(data: Any) -> tuple[Path, ...]:
    """Return the tables `train.*` and `test.*` of a folder, none where it lacks one."""
    if not isinstance(data, (str, Path)) or not Path(data).is_dir():
        return ()
    found = _files_of(Path(data), ("train", "test"))
    return (found["train"], found["test"]) if len(found) == 2 else ()


def _shifted(given: Any, source: Corpus, whole: Corpus, samples: int | None, seed: int) -> Corpus:
    """Return labelled samples to judge probes of `source`, drawn from `whole`, on: none that is in it too."""
    target = labelled(given, samples, seed)
    unknown = sorted(set(map(str, target.labels or ())) - set(map(str, whole.labels or ())))
    if unknown:
        raise LayerscopeError(
            f"{target.name} has labels that {source.name} lacks ({listed(unknown)}): leave these samples out, or add "
            f"some to {source.name}"
        )
    new = np.flatnonzero(~np.isin(target.digests, source.digests))
    if not len(new):
        raise LayerscopeError(
            f"every sample of {target.name} is in {source.name} too: give other data as `shift`"
        )
    copies, notes, named = len(target) - len(new), list(target.notes), f"{target.name} has"
    if copies:
        notes.append(
            f"{copies:,} of {len(target):,} samples of {target.name} are in {source.name} too: left out"
        )
    if 2 * (there := len(set(target.labels or ()))) < (of := len(set(source.labels or ()))):
        notes.append(
            f"{named} {there:,} of the {of:,} classes of {source.name}: scores on it cover only these"
        )
    return replace(target.take(new.tolist()), notes=tuple(notes))


def _of_mteb(task: Any) -> Iterator[Any]:
    """Yield the tasks of mteb that a name or object stands for."""
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
        for part in one.tasks if hasattr(one, "taskname_to_task") else [one]:
            _refuse_inputs(part.metadata)
            yield part


def _refuse_inputs(about: Any) -> None:
    """Raise where a task has inputs that no encoder of one modality takes."""
    unread = [kind for kind in about.modalities if kind not in READ]
    if unread:
        raise LayerscopeError(
            f"task {about.name} reads {listed(unread)}: evaluate takes texts, images and sounds"
        )
    sides = (about.category or "").split("2")
    if (
        any(len(side) > 1 for side in sides) and about.type != "Compositionality"
    ):  # which embeds each by itself
        raise LayerscopeError(
            f"task {about.name} mixes {' and '.join(about.modalities)} in one input ({about.category}): evaluate takes "
            "tasks whose inputs are each of one modality"
        )


def _by_name(name: str) -> list[Any]:
    import mteb

    if name == LAYER_BY_LAYER:
        # subsets that are named go before languages, of which STS17 has English in many a pair
        return [
            mteb.get_task(
                name, languages=["eng"], eval_splits=["test"], hf_subsets=ENGLISH.get(name)
            )
            for name in PAPER_TASKS
        ]
    try:
        return [mteb.get_task(name)]
    except KeyError:
        known = [
            LAYER_BY_LAYER,
            *(task.metadata.name for task in mteb.get_tasks(exclude_superseded=False)),
        ]
        begun = [other for other in known if other.lower().startswith(name.lower())]
        hint = (
            f", did you mean {listed(begun)}?"
            if name and begun
            else near(name, known)
            or f": give a name of mteb, or KIND:FILE ({', '.join([*FILES, LM])})"
        )
        raise LayerscopeError(f"task {name!r} does not exist in mteb{hint}") from None


def task_from_file(
    kind: str,
    path: Any,
    samples: Annotated[int | None, Whole(2)] = None,
    seed: Annotated[int, SEED] = 0,
) -> Any:
    """Return an mteb task made of a CSV, TSV, JSONL or Parquet file, a pandas frame or a `datasets.Dataset`.

    `kind` is classification or clustering (columns text, label), sts (text_a, text_b, score),
    pair-classification (text_a, text_b, label 0 or 1) or retrieval (query, document and, if given,
    score: a whole number, 0 for a document that is searched but does not answer; all documents of
    the file are searched for each query). Of a folder the files `test.*` and, for classification,
    `train.*` are read, and so are these splits of a `DatasetDict`; one file of a classification is
    split in two seeded halves, label by label, each text once. `samples` takes that many seeded
    rows of each file; test rows of a label that is then not among the training rows are left out.
    The task is named after the file or folder. Raises `LayerscopeError` for columns that are
    missing and values that cannot be judged.

    >>> from layerscope.evaluation import task_from_file
    >>> task = task_from_file("classification", "reviews.csv")
    >>> task.metadata.name, task.metadata.type
    ('reviews', 'Classification')
    """
    checked(task_from_file, locals())
    if kind not in FILES:
        raise LayerscopeError(f"task kind {kind!r} does not exist{choices(kind, FILES)}")
    about, given = FILES[kind], _in_memory(path, FILES[kind])
    if not given and not isinstance(path, (str, Path)):
        raise LayerscopeError(
            f"{kind} reads a pandas frame, a datasets.Dataset or a file, not a {type(path).__name__}"
        )
    file = None if given else existing(path, "task file")
    source, name = ("the data frame", "frame") if file is None else (str(file), _name(file))
    splits = {}
    for split, data in (given if file is None else _files(file, about)).items():
        rows = _read(data, kind)
        if samples is not None and len(rows) > samples:
            rows = rows.iloc[
                np.sort(np.random.default_rng(seed).choice(len(rows), samples, replace=False))
            ]
        for column in about.columns[:-1]:
            empty = rows[column].isna() | (rows[column].astype(str).str.strip() == "")
            refuse_rows(empty, rows[column], source, "fill it in, or leave the row out")
        rows = rows.astype(dict.fromkeys(about.columns[:-1], str))
        splits[split] = about.check(rows, source).reset_index(drop=True)
    splits = about.arrange(splits, samples, seed, source)
    return _task(
        kind,
        name,
        {split: rows.rename(columns=dict(about.renamed)) for split, rows in splits.items()},
    )


def _in_memory(data: Any, kind: FileKind) -> dict[str, Any]:
    """Return the frame of each split of data in memory, none for a file."""
    if is_a(data, "datasets.DatasetDict"):
        if "test" not in data:
            raise LayerscopeError(
                f"the data set has no split 'test' (its splits: {', '.join(data)}): rename one"
            )
        return {split: data[split].to_pandas() for split in kind.splits if split in data}
    if is_a(data, "datasets.Dataset"):
        return {"test": data.to_pandas()}
    return {"test": data} if is_frame(data) else {}


def _files(path: Path, kind: FileKind) -> dict[str, Path]:
    """Return the file of each split; the only table of a folder needs no name."""
    if not path.is_dir():
        return {"test": path}
    found = _files_of(path, kind.splits)
    if "test" in found:
        return found
    tables = _tables(path)
    if len(tables) != 1:
        raise LayerscopeError(
            f"folder {str(path)!r} holds no test.csv (.jsonl, .parquet): name the file itself"
        )
    return {"test": tables[0]}


def _tables(folder: Path) -> list[Path]:
    return [file for file in sorted(folder.iterdir()) if file.is_file() and table_suffix(file)]


def _files_of(folder: Path, names: Iterable[str]) -> dict[str, Path]:
    """Return the tables of a folder that are called by these names."""
    return {name: file for name in names for file in _tables(folder) if _name(file) == name}


def _name(path: Path) -> str:
    """Return a name that may stand in a path: of `banking/` banking, of `tickets.csv.gz` tickets."""
    name, suffix = path.resolve().name, table_suffix(path)
    return (
        re.sub(r"[^\w.-]+", "_", name[: name.lower().rindex(suffix)] if suffix else name) or "task"
    )


def _read(data: Any, kind: str) -> pd.DataFrame:
    """Return the columns of a table that the kind reads."""
    frame: pd.DataFrame | None = table_of(data)
    if frame is None:
        raise LayerscopeError(
            f"task file {data} has an unknown format: give CSV, TSV, JSONL or Parquet"
        )
    source, about = "the data frame" if is_frame(data) else data, FILES[kind]
    frame = frame.rename(columns=lambda name: str(name).strip())
    needed = [
        name
        for name in about.columns
        if name in frame or name != about.columns[-1] or about.default is None
    ]
    refuse_columns(frame, needed, source)
    return frame.reindex(columns=list(about.columns), fill_value=about.default)


def _task(kind: str, name: str, splits: Splits) -> Any:
    import mteb.abstasks as abstasks
    from mteb.abstasks.task_metadata import TaskMetadata

    contents = "".join(
        f"{split}{rows.to_json(orient='split')}" for split, rows in sorted(splits.items())
    )
    revision, about = hashlib.sha256(f"{kind}{contents}".encode()).hexdigest()[:40], FILES[kind]
    metadata = TaskMetadata(
        name=name,
        description=f"{kind} of the user's own file",
        type=about.type,
        dataset={"path": name, "revision": revision},
        eval_splits=["test"],
        eval_langs=["eng-Latn"],  # mteb asks for one; nothing reads it
        main_score=about.main_score,
        category=about.category,
        modalities=["text"],
    )
    members = {"metadata": metadata, **about.about(splits["test"])}
    task = type(f"Own{about.type}", (getattr(abstasks, f"AbsTask{about.type}"),), members)()
    task.dataset = about.data(splits)
    task.data_loaded = True
    return task

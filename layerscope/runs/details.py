"""A table of what was run, what a run still lacks, and names that tell runs apart.

Two runs of one model on reviews and on tickets are "minilm on reviews" and "minilm on tickets"; of
one model on the same data, with other options, "minilm (first)" and "minilm (second)", by their
folders.
"""

import datetime as dt
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from layerscope.core.labels import is_target
from layerscope.runs.registry import METRICS
from layerscope.runs.run import Run
from layerscope.show import Facts, Sentences

LONG = ("model blocks", "data examples")
"""Lists that no reader compares."""


def details(run: Run) -> tuple[Facts | Sentences, ...]:
    """Return how a run was made: its folder and command, its notes, and model, data and options by name."""
    info = run.info
    settings = dict[str, object]()
    made = {"run folder": str(run.path), "command": info.get("command")}
    for event in run.folder.events("started")[:1]:
        time = dt.datetime.fromtimestamp(event["time"], dt.UTC)
        made["made"] = f"{time:%Y-%m-%d %H:%M} UTC"
    for group in ("model", "data", "options"):
        for name, value in info[group].items():
            if f"{group} {name}" not in LONG:
                settings[f"{group} {name}"] = value
    settings["layerscope"] = info.get("layerscope")
    return (
        Facts(tuple(_shown(made))),
        Sentences("Noted on the way:", tuple(map(str, info.get("notes", ())))),
        Facts(tuple(_shown(settings)), "Model, data and options"),
    )


def _shown(facts: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Yield names and facts as texts, without those that are not set.

    >>> [*_shown({"model dtype": "float32", "model part": None, "options metrics": ["cka", "dime"]})]
    [('model dtype', 'float32'), ('options metrics', 'cka, dime')]
    """
    for name, value in facts.items():
        if isinstance(value, list):
            value = ", ".join(map(str, value))
        if value not in (None, ""):
            yield name.replace("_", " "), str(value)


def unfinished(run: Run) -> Iterator[str]:
    """Yield what a run that was stopped still lacks, one line each."""
    folder = run.folder
    shards = folder.shards
    missing = len(shards) - sum(map(folder.is_finished, shards))
    if missing:
        yield f"unfinished: {missing:,} of {len(shards):,} shards are missing"
    names = {*run.info["options"]["metrics"]}
    # numbers to predict have another probe than classes
    if is_target(folder.labels()):
        names -= {"linear_probe", "knn_probe"}
    else:
        names -= {"ridge_probe"}
    lacking = []
    for name, metric in METRICS.items():
        if name in names and not folder.has_table(metric.needs):
            lacking.append(metric.title)
    if lacking:
        yield f"unfinished: {', '.join(lacking)} not computed yet; run the same command to resume"


def run_names(runs: Sequence[Run]) -> list[str]:
    """Return the shortest names by which runs differ, in their order: what came from a model or data, as it is there.

    The model's name; `model on data` where the data differ; what it was trained for, where that
    differs; for runs that still share a name the run folder's name in parentheses, else its path.
    Only one run given twice has one name twice.
    """
    infos = [run.info for run in runs]
    data = {info["data"]["name"] for info in infos}
    objectives = {info["options"].get("objective") or "" for info in infos}
    short = []
    for info in infos:
        name = info["model"]["name"]
        objective = info["options"].get("objective")
        if len(data) > 1:
            name += f" on {info['data']['name']}"
        if len(objectives) > 1 and objective:
            name += f", {objective}"
        short.append(name)
    names = [*short]
    folders = [run.path.resolve() for run in runs]
    for paths in ([folder.name for folder in folders], folders):
        times = Counter(names)
        for i, path in enumerate(paths):
            if times[names[i]] > 1:
                names[i] = f"{short[i]} ({path})"
    return names

"""A table of what was run, what a run still lacks, and names that tell runs apart."""

import datetime as dt
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from layerscope.runs.registry import METRICS
from layerscope.show.document import Facts, Sentences

if TYPE_CHECKING:
    from layerscope.runs.run import Run

LONG = ("blocks", "examples")
"""Lists that no reader compares."""


def details(run: "Run") -> tuple[Facts | Sentences, ...]:
    """Return how a run was made: its folder and command, its notes, and model, data and options by name."""
    info, started = run.info, run.folder.events("started")
    made = {"run folder": str(run.path), "command": info.get("command")}
    if started:
        made["made"] = (
            f"{dt.datetime.fromtimestamp(started[0]['time'], dt.UTC):%Y-%m-%d %H:%M} UTC"
        )
    settings = {
        f"{group} {name}": value
        for group in ("model", "data", "options")
        for name, value in info[group].items()
        if name not in LONG
    }
    settings["layerscope"] = info.get("layerscope")
    return (
        Facts(_shown(made)),
        Sentences("Noted on the way:", tuple(map(str, info.get("notes", ())))),
        Facts(_shown(settings), "Model, data and options"),
    )


def _shown(facts: dict[str, object]) -> tuple[tuple[str, str], ...]:
    """Return names and facts as texts, without those that are not set."""
    entries = []
    for name, value in facts.items():
        words = ", ".join(map(str, value)) if isinstance(value, list) else value
        if words not in (None, ""):
            entries.append((name.replace("_", " "), str(words)))
    return tuple(entries)


def unfinished(run: "Run") -> tuple[str, ...]:
    """Return what a run that was stopped still lacks, one line each."""
    folder = run.folder
    missing = sum(not folder.is_finished(shard) for shard in folder.shards)
    chosen = [
        METRICS[name] for name in run.info["options"]["metrics"] if name in METRICS
    ]
    titles = [metric.title for metric in chosen if not folder.has_table(metric.needs)]
    lines = []
    if missing:
        lines.append(
            f"unfinished: {missing:,} of {len(folder.shards):,} shards are missing"
        )
    if titles:
        names = ", ".join(titles)
        lines.append(
            f"unfinished: {names} not computed yet; run the same command to resume"
        )
    return tuple(lines)


def run_names(runs: "Sequence[Run]") -> list[str]:
    """Return the shortest names by which runs differ, in their order: what came from a model or data, as it is there.

    The model's name; `model on data` where the data differ; what it was trained for, where that
    differs; for runs that still share a name the run folder's name in parentheses, else its path.
    Only one run given twice has one name twice.
    """
    names = [str(run.info["model"]["name"]) for run in runs]
    data = [str(run.info["data"]["name"]) for run in runs]
    objectives = [run.info["options"].get("objective") for run in runs]
    if len(set(data)) > 1:
        names = [f"{name} on {on}" for name, on in zip(names, data, strict=True)]
    if len(set(objectives)) > 1:
        pairs = zip(names, objectives, strict=True)
        names = [
            f"{name}, {objective}" if objective else name for name, objective in pairs
        ]
    short, paths = names, [run.path.resolve() for run in runs]
    for marks in ([path.name for path in paths], [str(path) for path in paths]):
        times = Counter(names)
        marked = [f"{base} ({mark})" for base, mark in zip(short, marks, strict=True)]
        pairs = zip(names, marked, strict=True)
        names = [other if times[name] > 1 else name for name, other in pairs]
    return names

"""A table of what was run, what a run still lacks, and names that tell runs apart."""

import datetime as dt
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from layerscope.runs.registry import METRICS
from layerscope.show.document import Facts, Sentences

if TYPE_CHECKING:
    from layerscope.runs.run import Run

LONG = ("model blocks", "data examples")
"""Lists that no reader compares."""


def details(run: "Run") -> tuple[Facts | Sentences, ...]:
    """Return how a run was made: its folder and command, its notes, and model, data and options by name."""
    info, started = run.info, run.folder.events("started")
    made = {"run folder": str(run.path), "command": info.get("command")}
    if started:
        made["made"] = (
            f"{dt.datetime.fromtimestamp(started[0]['time'], dt.UTC):%Y-%m-%d %H:%M} UTC"
        )
    settings: dict[str, object] = {}
    for group in ("model", "data", "options"):
        for name, value in info[group].items():
            settings[f"{group} {name}"] = value
    for name in LONG:
        settings.pop(name, None)
    settings["layerscope"] = info.get("layerscope")
    return (
        Facts(_shown(made)),
        Sentences("Noted on the way:", tuple(map(str, info.get("notes", ())))),
        Facts(_shown(settings), "Model, data and options"),
    )


def _shown(facts: Mapping[str, object]) -> tuple[tuple[str, str], ...]:
    """Return names and facts as texts, without those that are not set."""
    entries = []
    for name, value in facts.items():
        if isinstance(value, list):
            value = ", ".join(map(str, value))
        if value not in (None, ""):
            entries.append((name.replace("_", " "), str(value)))
    return tuple(entries)


def unfinished(run: "Run") -> tuple[str, ...]:
    """Return what a run that was stopped still lacks, one line each."""
    folder = run.folder
    shards = folder.shards
    missing = len(shards) - sum(map(folder.is_finished, shards))
    lines = []
    if missing:
        lines.append(f"unfinished: {missing:,} of {len(shards):,} shards are missing")
    titles = []
    for name in run.info["options"]["metrics"]:
        metric = METRICS.get(name)
        if metric and not folder.has_table(metric.needs):
            titles.append(metric.title)
    if titles:
        lines.append(
            f"unfinished: {', '.join(titles)} not computed yet; run the same command to resume"
        )
    return tuple(lines)


def run_names(runs: "Sequence[Run]") -> list[str]:
    """Return the shortest names by which runs differ, in their order: what came from a model or data, as it is there.

    The model's name; `model on data` where the data differ; what it was trained for, where that
    differs; for runs that still share a name the run folder's name in parentheses, else its path.
    Only one run given twice has one name twice.
    """
    names = [str(run.info["model"]["name"]) for run in runs]
    marks: list[tuple[str, list[str]]] = [
        (" on {}", [run.info["data"]["name"] for run in runs]),
        (", {}", [run.info["options"].get("objective") or "" for run in runs]),
    ]
    for form, facts in marks:
        if len(set(facts)) > 1:
            pairs = zip(names, facts, strict=True)
            names = [name + form.format(fact) * bool(fact) for name, fact in pairs]
    short, names = names, [*names]
    folders = [run.path.resolve() for run in runs]
    for paths in ([folder.name for folder in folders], folders):
        times = Counter(names)
        for i, path in enumerate(paths):
            if times[names[i]] > 1:
                names[i] = f"{short[i]} ({path})"
    return names

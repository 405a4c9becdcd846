"""What was run: names of runs, the command, its notes, the first samples, and model, data and options by name."""

import datetime as dt
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from layerscope.runs.registry import METRICS
from layerscope.show.document import Code, Facts, Sentences
from layerscope.show.plain import plain

if TYPE_CHECKING:
    from layerscope.runs.run import Run

MOST_LABELS = 12
HASHES = ("fingerprint", "weights", "tokens")


def details(run: "Run") -> tuple[Code | Facts | Sentences, ...]:
    """Return how a run was made."""
    info = run.info
    model, data = dict(info["model"]), dict(info["data"])
    blocks = model.pop("blocks", [])
    model["blocks"] = f"{blocks[0]} … {blocks[-1]}" if blocks else "–"
    plan = run.folder.plan
    if "label" in plan:
        counts = plan.loc[plan["view"] == 0, "label"].value_counts()
        shown = [f"{plain(str(label))} ({n:,})" for label, n in counts.head(MOST_LABELS).items()]
        more = [f"… ({len(counts):,} labels)"] if len(counts) > MOST_LABELS else []
        data["labels"] = ", ".join([*shown, *more])
    examples = tuple(data.pop("examples", ()))
    started = run.folder.events("started")
    date = (
        dt.datetime.fromtimestamp(started[0]["time"], dt.UTC).strftime("%Y-%m-%d %H:%M UTC")
        if started
        else ""
    )
    groups = {
        "Model": model,
        "Data": data,
        "Options": info["options"],
        "Versions": {"layerscope": info.get("layerscope"), **info.get("versions", {})},
    }
    command = str(info.get("command") or "")
    return (
        Facts((("run folder", str(run.path)), *([("made", date)] if date else []))),
        *([Code("The command to repeat it:", command)] if command else []),
        Sentences("Noted on the way:", tuple(map(str, info.get("notes", ())))),
        Sentences("The first samples:", examples, quoted=True),
        *(
            Facts(
                tuple((key.replace("_", " "), _shown(key, value)) for key, value in values.items()),
                name,
            )
            for name, values in groups.items()
        ),
    )


def unfinished(run: "Run") -> tuple[str, ...]:
    """Return what a run that was stopped still lacks, one line each."""
    folder = run.folder
    missing = sum(not folder.is_finished(shard) for shard in folder.shards)
    chosen = [METRICS[name] for name in run.info["options"]["metrics"] if name in METRICS]
    names = [metric.title for metric in chosen if not folder.has_table(metric.needs)]
    found = (
        [f"unfinished: {missing:,} of {len(folder.shards):,} shards are missing"] if missing else []
    )
    if names:
        found.append(
            f"unfinished: {', '.join(names)} not computed yet; run the same command to resume"
        )
    return tuple(found)


def _shown(name: str, value: object) -> str:
    if value is None or value == []:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}" if name != "seed" else str(value)
    if isinstance(value, list):
        return ", ".join(plain(str(v)) for v in value)
    text = plain(str(value))
    return f"{text[:12]}…" if name in HASHES else text


def run_names(runs: "Sequence[Run]") -> list[str]:
    """Return the shortest names by which runs differ, in their order: what came from a model or data, as it is there.

    The model's name; `model on data` where the data differ; what it was trained for, where that
    differs; for runs that still share a name the run folder's name in parentheses, else its path.
    Only one run given twice has one name twice.
    """
    models = [str(run.info["model"]["name"]) for run in runs]
    data = [str(run.info["data"]["name"]) for run in runs]
    short = (
        models
        if len(set(data)) <= 1
        else [f"{model} on {on}" for model, on in zip(models, data, strict=True)]
    )
    ways = [run.info["options"].get("objective") for run in runs]
    if len(set(ways)) > 1:
        short = [f"{name}, {way}" if way else name for name, way in zip(short, ways, strict=True)]
    names, paths = short, [run.path.resolve() for run in runs]
    parts = list(zip(*(path.parts[::-1] for path in paths), strict=False))
    differing = next((folders for folders in parts if len(set(folders)) > 1), short)
    for marks in (differing, list(map(str, paths))):
        times = Counter(names)
        names = [
            f"{base} ({mark})" if times[name] > 1 else name
            for name, base, mark in zip(names, short, marks, strict=True)
        ]
    return names

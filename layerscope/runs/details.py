"""What was run: the command, its notes, the first samples, and model, data, options and versions by name."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from layerscope.runs.registry import METRICS
from layerscope.show.document import Code, Facts, Sentences
from layerscope.show.plain import plain

if TYPE_CHECKING:
    from layerscope.runs.run import Run

MOST_LABELS = 12
HASHES = ("fingerprint", "weights", "tokens")


def details(run: Run) -> tuple[Code | Facts | Sentences, ...]:
    """Return how a run was made."""
    info = run.info
    model, data = dict(info["model"]), dict(info["data"])
    blocks = model.pop("blocks", [])
    model["blocks"] = f"{blocks[0]} … {blocks[-1]}" if blocks else "–"
    if counts := label_counts(run):
        data["labels"] = counts
    examples = tuple(data.pop("examples", ()))
    started = run.folder.events("started")
    date = dt.datetime.fromtimestamp(started[0]["time"], dt.UTC).strftime("%Y-%m-%d %H:%M UTC") if started else ""
    groups = {
        "Model": model,
        "Data": data,
        "Options": info["options"],
        "Versions": {"layerscope": info.get("layerscope"), **info.get("versions", {})},
    }
    made = (("run folder", str(run.path)), *([("made", date)] if date else []))
    command = str(info.get("command") or "")
    return (
        Facts(made),
        *([Code("The command to repeat it:", command)] if command else []),
        Sentences("Noted on the way:", tuple(map(str, info.get("notes", ())))),
        Sentences("The first samples:", examples, quoted=True),
        *(Facts(tuple(_entries(values)), name) for name, values in groups.items()),
    )


def unfinished(run: Run) -> tuple[str, ...]:
    """Return what a run that was stopped still lacks, one line each."""
    folder = run.folder
    missing = sum(not folder.is_finished(shard) for shard in folder.shards)
    chosen = [METRICS[name] for name in run.info["options"]["metrics"] if name in METRICS]
    names = [metric.title for metric in chosen if not folder.has_table(metric.needs)]
    found = [f"unfinished: {missing:,} of {len(folder.shards):,} shards are missing"] if missing else []
    if names:
        found.append(f"unfinished: {', '.join(names)} not computed yet; the same command goes on")
    return tuple(found)


def label_counts(run: Run) -> str:
    """Return how many samples bear each label, the most frequent first; empty where there are none."""
    plan = run.folder.plan
    if "label" not in plan:
        return ""
    counts = plan.loc[plan["view"] == 0, "label"].value_counts()
    shown = [f"{plain(str(label))} ({n:,})" for label, n in counts.head(MOST_LABELS).items()]
    more = f", … ({len(counts):,} labels)" if len(counts) > MOST_LABELS else ""
    return ", ".join(shown) + more


def _entries(values: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in values.items():
        yield name.replace("_", " "), _shown(name, value)


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

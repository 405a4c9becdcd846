"""From runs to what was run: model, data, options, versions, and what differs between several."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from layerscope.comparison.matching import OPTIONS
from layerscope.runs.registry import METRICS
from layerscope.runs.run import Run
from layerscope.show.plain import plain

MOST_LABELS = 12
DECISIVE = {
    "data.fingerprint": "their data",
    "data.samples": "the number of samples",
    "options.pooling": "pooling",
    **{f"options.{name}": told for name, told in OPTIONS.items()},
}
"""Facts that move a metric without the model."""
HASHES = ("fingerprint", "weights", "tokens")
UNCHANGED = ("model.blocks", "data.examples")
"""Facts too long to compare: what they come from (class, source) is compared instead."""


@dataclass(frozen=True)
class Facts:
    """What one run was: pairs of a name and a text under four headings, and the notes it was made with."""

    command: str
    date: str
    groups: tuple[tuple[str, tuple[tuple[str, str], ...]], ...]
    examples: tuple[str, ...]
    notes: tuple[str, ...]


def facts(run: Run) -> Facts:
    """Return what a run was made of, in texts fit to be shown."""
    info = run.info
    model, data = dict(info["model"]), dict(info["data"])
    blocks = model.pop("blocks", [])
    model["blocks"] = f"{blocks[0]} … {blocks[-1]}" if blocks else "–"
    if counts := label_counts(run):
        data["labels"] = counts
    examples = tuple(_lines(text) for text in data.pop("examples", ()))
    started = run.folder.events("started")
    date = dt.datetime.fromtimestamp(started[0]["time"], dt.UTC).strftime("%Y-%m-%d %H:%M UTC") if started else ""
    groups = {
        "Model": model,
        "Data": data,
        "Options": info["options"],
        "Versions": {"layerscope": info.get("layerscope"), **info.get("versions", {})},
    }
    return Facts(
        command=plain(str(info.get("command") or "")),
        date=date,
        groups=tuple((name, tuple(_told(values))) for name, values in groups.items()),
        examples=examples,
        notes=tuple(plain(str(note)) for note in [*unfinished(run), *info.get("notes", ())]),
    )


def unfinished(run: Run) -> list[str]:
    """Return what a run that was stopped still lacks, one line each."""
    folder = run.folder
    missing = sum(not folder.is_finished(shard) for shard in folder.shards)
    lacking = {METRICS[m].needs for m in run.info["options"]["metrics"] if m in METRICS}
    lacking = {needs for needs in lacking if not folder.has_table(needs)}
    names = [METRICS[m].title for m in run.info["options"]["metrics"] if m in METRICS and METRICS[m].needs in lacking]
    found = [f"unfinished: {missing:,} of {len(folder.shards):,} shards are missing"] if missing else []
    if names:
        found.append(f"unfinished: {', '.join(names)} not computed yet; the same command goes on")
    return found


def label_counts(run: Run) -> str:
    """Return how many samples bear each label, the most frequent first; empty where there are none."""
    plan = run.folder.plan
    if "label" not in plan:
        return ""
    counts = plan.loc[plan["view"] == 0, "label"].value_counts()
    shown = [f"{plain(str(label))} ({n:,})" for label, n in counts.head(MOST_LABELS).items()]
    more = f", … ({len(counts):,} labels)" if len(counts) > MOST_LABELS else ""
    return ", ".join(shown) + more


def differences(runs: Sequence[Run]) -> list[tuple[str, list[str]]]:
    """Return the facts in which runs differ, each with its value in every run."""
    if len(runs) < 2:
        return []
    flat = [dict(_flat(run.info)) for run in runs]
    names = list(dict.fromkeys(name for facts in flat for name in facts))
    rows = [(name, [facts.get(name, "–") for facts in flat]) for name in names if name not in UNCHANGED]
    return [(name.replace("_", " "), values) for name, values in rows if len(set(values)) > 1]


def unlike(runs: Sequence[Run]) -> str:
    """Return one sentence on what keeps the values of runs from being compared, empty where nothing does."""
    flat = [dict(_flat(run.info)) for run in runs]
    names = [title for key, title in DECISIVE.items() if len({facts.get(key) for facts in flat}) > 1]
    if not names:
        return ""
    listed = f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else names[0]
    return f"These runs differ in {listed}: compare their shapes, not one value with another."


def _flat(info: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for group in ("model", "data", "options", "versions"):
        for name, value in info.get(group, {}).items():
            yield f"{group}.{name}", _shown(name, value)
    yield "layerscope", str(info.get("layerscope"))


def _told(values: dict[str, Any]) -> Iterator[tuple[str, str]]:
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


def _lines(text: str) -> str:
    return "\n".join(plain(line) for line in text.split("\n"))

"""The rows of the campaign's models as a page: `python tests/campaign/table_of_models.py rows.jsonl > page.md`."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

VERBS = ("inspect", "profile", "lens", "truncate", "exits")
LINE = 110


def page(rows: list[dict[str, Any]], version: str) -> str:
    """Return counts, then a row for each class: what came of every verb, and why it was refused or skipped."""
    tried = [row for row in rows if not row["skipped"]]
    stacked = [row for row in tried if row["stack"]]
    refused = [
        row for row in stacked if not row["verbs"].get("inspect", "").startswith("ok")
    ]
    lines = [
        "# Models of the campaign",
        "",
        f"Classes of transformers {version}, each built small from its config with random weights and norms, and "
        "put through five verbs. *ok* is equal to an independent computation: hooks on the blocks, the model's own "
        "logits, the truncated checkpoint loaded by transformers alone. Anything else is refused in one line. Of every "
        "model type these are the class that says most about it and its classifier.",
        "",
        f"{len(rows)} classes of {len({row['kind'] for row in rows})} model types: {len(tried)} examined, "
        f"{len(rows) - len(tried)} skipped because they could not be built small. {len(stacked)} of those examined run "
        "a list of like blocks, each of which reads what the one before it gives; "
        f"{len(refused)} of these are refused ({len(refused) / max(1, len(stacked)):.1%}).",
        "",
        "| | ok | refused | defect |",
        "| --- | --- | --- | --- |",
    ]
    for verb in VERBS:
        counts = Counter(word_of(row["verbs"].get(verb, "")) for row in tried)
        lines.append(
            f"| {verb} | {counts['ok']} | {counts['refused']} | {counts['DEFECT']} |"
        )
    lines += [
        "",
        "## By class",
        "",
        f"| class | {' | '.join(VERBS)} | why refused |",
        "| --- " * 7 + "|",
    ]
    lines += [_row(row) for row in sorted(tried, key=lambda row: row["name"].lower())]
    lines += ["", "## Skipped", "", "| class | why |", "| --- | --- |"]
    lines += [
        f"| {row['name']} | {_cell(row['skipped'])} |"
        for row in sorted(rows, key=_name)
        if row["skipped"]
    ]
    return "\n".join(lines) + "\n"


def word_of(text: str) -> str:
    return text.split(":")[0].split()[0] if text else ""


def _row(row: dict[str, Any]) -> str:
    words = [word_of(row["verbs"].get(verb, "")) for verb in VERBS]
    why = (
        row["verbs"].get("inspect", "").partition(": ")[2]
        or row["verbs"].get("truncate", "").partition(": ")[2]
    )
    return f"| {row['name']} | {' | '.join(words)} | {_cell(why)} |"


def _cell(text: str) -> str:
    short = " ".join(text.split())
    short = short if len(short) <= LINE else short[: LINE - 1].rstrip() + "…"
    for mark in "\\|<>*_`[]":
        short = short.replace(mark, f"\\{mark}")
    return short


def _name(row: dict[str, Any]) -> str:
    return str(row["name"]).lower()


if __name__ == "__main__":
    import transformers

    found = {
        row["name"]: row
        for path in sys.argv[1:]
        for row in map(json.loads, Path(path).read_text().splitlines())
    }
    print(page(list(found.values()), transformers.__version__), end="")

"""The order of checkpoints, and what they are called."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePath

from layerscope.runs.run import Run

STEP = re.compile(r"(?:step|checkpoint|ckpt|iter|epoch)[-_=]?(\d+)", re.IGNORECASE)


def steps(runs: Sequence[Run]) -> list[int] | None:
    """Return the step of each checkpoint, where revision, model or run folder of every one tells another; else None."""
    for places in (_revisions(runs), _sources(runs), [run.path.name for run in runs]):
        found = [int(match[-1]) if (match := STEP.findall(text)) else None for text in places]
        known = [step for step in found if step is not None]
        if len(known) == len(set(known)) == len(runs):
            return known
    return None


def _revisions(runs: Sequence[Run]) -> list[str]:
    return [str(run.info["options"].get("revision") or run.info["model"].get("revision") or "") for run in runs]


def _sources(runs: Sequence[Run]) -> list[str]:
    return [PurePath(str(run.info["model"].get("source") or "")).name for run in runs]

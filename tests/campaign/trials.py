"""Trials of the campaign: as many as its minutes allow."""

from __future__ import annotations

import json
import os
import random
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

MINUTES = float(os.environ.get("CAMPAIGN_MINUTES", 5))
"""Length of the whole campaign."""
SEED = int(os.environ.get("CAMPAIGN_SEED", 0))
LOG = os.environ.get("CAMPAIGN_LOG")
"""A JSONL file that takes a line a part: trials, seconds, outcomes, finds."""


class Trial:
    """One trial of a part: its seed, a generator drawn from it, and its outcome, by default "held"."""

    def __init__(self, part: Part, seed: int) -> None:
        self.part, self.seed, self.outcome = part, seed, "held"
        self.random = random.Random(f"{part.name} {seed}")

    def __enter__(self) -> Trial:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: object,
    ) -> bool:
        """A failed trial is kept for the end, so that one find does not hide the next."""
        if error is not None and isinstance(error, Exception | pytest.fail.Exception):
            self.outcome = "find"
            self.part.finds.append(
                f"seed {self.seed}: {''.join(traceback.format_exception(error)[-1:])}"[
                    :2000
                ]
            )
            print(
                f"{self.part.name}: {self.part.finds[-1]}", file=sys.stderr, flush=True
            )
        self.part.outcomes[self.outcome] += 1
        return self.outcome == "find"


class Part:
    """A part of the campaign: as many trials as a share of its minutes holds.

    for trial in Part("inputs: tables", share=0.1).trials():
        with trial:
            ...  # trial.random draws; an assertion that fails is a find; trial.outcome = "refused" counts it
    """

    def __init__(self, name: str, share: float) -> None:
        self.name, self.seconds = name, 60 * MINUTES * share
        self.outcomes: Counter[str] = Counter()
        self.finds: list[str] = []

    def trials(self, most: int | None = None) -> Iterator[Trial]:
        """Yield trials, `most` at most (a part that walks a list); fail at the end where one of them failed."""
        start, seed = time.monotonic(), SEED
        end = SEED + (sys.maxsize if most is None else most)
        while seed < end and time.monotonic() - start < self.seconds:
            yield Trial(self, seed)
            seed += 1
        self._note(time.monotonic() - start)
        if self.finds:
            pytest.fail(
                f"{self.name}: {len(self.finds)} finds in {seed - SEED} trials\n"
                + "\n".join(self.finds[:20])
            )

    def _note(self, seconds: float) -> None:
        line = {
            "part": self.name,
            "trials": sum(self.outcomes.values()),
            "seconds": round(seconds, 1),
        }
        line |= {"outcomes": dict(self.outcomes), "seed": SEED, "finds": self.finds}
        print(
            json.dumps(line | {"finds": len(self.finds)}), file=sys.stderr, flush=True
        )
        if LOG:
            with Path(LOG).open("a") as log:
                log.write(json.dumps(line) + "\n")

"""Trials of the campaign: as many as its minutes allow."""

import json
import os
import random
import sys
import time
import traceback
from collections import Counter
from pathlib import Path

MINUTES = float(os.environ.get("CAMPAIGN_MINUTES", 5))
"""Length of the whole campaign."""
SEED = int(os.environ.get("CAMPAIGN_SEED", 0))
LOG = os.environ.get("CAMPAIGN_LOG")
"""A JSONL file that takes a line a part: trials, seconds, outcomes, finds."""


def tried(part, share, attempt, most=sys.maxsize):
    """Make trials, `most` at most, for a share of the campaign's minutes; fail at the end where one of them failed.

    A trial is given its seed and a generator drawn from it, and returns how it came out.
    """
    outcomes = Counter()
    finds = []
    start, seed = time.monotonic(), SEED
    while seed < SEED + most and time.monotonic() - start < 60 * MINUTES * share:
        try:
            outcome = attempt(seed, random.Random(f"{part} {seed}"))
        except Exception as error:
            outcome = "find"
            words = "".join(traceback.format_exception_only(error))
            finds.append(f"seed {seed}: {words}"[:2000])
            print(f"{part}: {finds[-1]}", file=sys.stderr, flush=True)
        outcomes[outcome] += 1
        seed += 1
    line = {
        "part": part,
        "trials": outcomes.total(),
        "outcomes": outcomes,
        "seed": SEED,
    }
    line |= {"seconds": round(time.monotonic() - start, 1), "finds": finds}
    print(json.dumps(line), file=sys.stderr, flush=True)
    if LOG:
        with Path(LOG).open("a") as log:
            log.write(json.dumps(line) + "\n")
    assert not finds, f"{part}: {len(finds)} finds in {outcomes.total()} trials"

"""Whether the guarantee of calibrated exits holds, and what they win at the same time.

    python benchmarks/exit_guarantee.py MODEL --data train.csv [--exclude trained.csv] [--draws 50]
    [--rows 1000]

Of a pool of labelled or unlabelled texts that the model was not trained on, 50 seeded draws of
1,000 rows go through what `layerscope exits` does: a fifth chooses the exits, the others certify
the threshold. All other rows are the truth: a draw is violated where more than 1 % of them are
predicted otherwise than by the full model. At 95 % confidence, 6 of 50 are within the 99 % binomial
limit. The speed-up is the cost model's, from times measured here, on those rows.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from functools import partial

import numpy as np
import pandas as pd
from scipy.stats import binom

POOL = 9000
SPEEDUP = 1.2


def main() -> None:
    """Run all draws and fail where the guarantee or the speed-up is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("--data", required=True)
    parser.add_argument("--exclude", help="a table whose texts were trained on")
    parser.add_argument("--draws", type=int, default=50)
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--max-disagreement", type=float, default=0.01)
    given = parser.parse_args()

    from layerscope.core.progress import reporting
    from layerscope.early_exit import ExitModel
    from layerscope.early_exit.calibration import (
        affordable_threshold,
        calibrate_recorded,
        split,
    )
    from layerscope.early_exit.cost_model import choose_exits
    from layerscope.early_exit.options import Goal
    from layerscope.early_exit.timing import measure_costs
    from layerscope.early_exit.validation import read_validation, record_all
    from layerscope.metrics import exit_speedup

    frame = pd.read_csv(given.data).drop_duplicates("text")
    if given.exclude:
        frame = frame[~frame["text"].isin(set(pd.read_csv(given.exclude)["text"]))]
    pool = frame.sample(min(POOL, len(frame)), random_state=0)
    model = ExitModel(given.model)
    read = read_validation(model, (pool["text"].tolist(), pool["label"].tolist()))
    console = reporting(True)
    with console.bar("every layer", len(read), "samples") as advance:
        recorded = record_all(model, read, 32, advance)
    goal = Goal(given.max_disagreement)
    costs = measure_costs(model, read, 32, console)
    violations, layers, clock, never = 0, [], [], 0
    with console.bar("draws", given.draws, "draws") as advance:
        for draw in range(given.draws):
            order = np.random.default_rng(draw).permutation(len(recorded))
            known, others = np.sort(order[: given.rows]), np.sort(order[given.rows :])
            design, tested = split(len(known), goal)
            chosen_on = recorded.take(known[design])
            allowed = partial(
                affordable_threshold, chosen_on, tested=len(tested), goal=goal
            )
            exits = choose_exits(chosen_on, costs, 32, allowed)
            calibration = calibrate_recorded(recorded.take(known[tested]), exits, goal)
            truth = recorded.take(others)
            leaving = truth.leaves(calibration.exits, calibration.threshold)
            violations += truth.disagreement(leaving) > given.max_disagreement
            never += bool((leaving == recorded.depth).all())
            layers.append(
                exit_speedup(
                    np.bincount(leaving, minlength=recorded.depth + 1)[1:].astype(float)
                )
            )
            ends = np.full(len(truth), truth.depth)
            plain = costs.seconds(ends, (), truth.depth, 32)
            clock.append(plain / costs.seconds(leaving, exits, truth.depth, 32))
            advance(1)
    limit = int(binom.ppf(0.99, given.draws, 0.05)) - 1  # more come with less than 1 %
    print(
        f"{violations} of {given.draws} draws violated (limit {limit}; never leaving {never}), truth of "
        f"{len(recorded) - given.rows:,} rows; median speed-up {statistics.median(layers):.2f} x in layers "
        f"({min(layers):.2f} to {max(layers):.2f}), {statistics.median(clock):.2f} x on the clock "
        f"({min(clock):.2f} to {max(clock):.2f}), bar {SPEEDUP}"
    )
    sys.exit(violations > limit or statistics.median(clock) < SPEEDUP)


if __name__ == "__main__":
    main()

"""The scores of a page: every series of an evaluation behind the runs, and which runs they go with."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from layerscope.reports.correlations import Pairing, pairings
from layerscope.reports.page.content import Json, Shown
from layerscope.scores.evaluation import Evaluation
from layerscope.scores.scored import Score, Scored, decimals, scored
from layerscope.show.plain import plain

INTERVALS = "Intervals (95 %) resample {}, layers held fixed; with few of them they say little."
LAYERS = "The intervals (95 %) resample layers, which are alike: they are narrower than the truth."


@dataclass(frozen=True)
class ShownScores:
    """Scores of the page: every series of an evaluation, their places behind the runs, and the runs they go with."""

    evaluation: Evaluation
    entries: list[Scored]
    first: int
    runs: Sequence[Shown]

    @cached_property
    def pairings(self) -> list[Pairing]:
        """Every run with the scores of its model."""
        return pairings([shown.run for shown in self.runs], self.evaluation, self.entries)

    @cached_property
    def decimals(self) -> int:
        """How many decimals tell layers apart."""
        return decimals(self.evaluation)

    def told(self, score: Score | float) -> str:
        """Return a score as it is shown, with its standard error where that is known."""
        score = Score(score) if isinstance(score, float) else score
        if math.isnan(score.value):
            return "–"
        error = f" ±{score.error:.{self.decimals}f}" if math.isfinite(score.error) else ""
        return f"{score.value:.{self.decimals}f}{error}"


def shown_scores(evaluation: Evaluation, runs: Sequence[Shown]) -> ShownScores:
    """Return the scores of an evaluation as the page shows them behind so many runs."""
    return ShownScores(evaluation, scored(evaluation), len(runs), runs)


def members(shown: ShownScores) -> list[Json]:
    """Return what the scripts know of each series: name, depth, and which colour it shares with a run of its model."""
    paired = {pairing.scored: pairing.run for pairing in reversed(shown.pairings)}
    free = iter(i for i in range(len(shown.entries) + shown.first) if i not in paired.values())
    looks: list[int] = []
    for i in range(len(shown.entries)):
        look = paired.get(i)
        looks.append(next(free) if look is None or look in looks else look)
    depths = [max(1, *entry.layers) for entry in shown.entries]
    for i, run in paired.items():
        depths[i] = max(depths[i], shown.runs[run].run.depth)
    alone = len(shown.entries) == 1
    return [
        {"name": entry.name, "depth": depths[i], "alone": alone, "look": looks[i], "scores": None}
        for i, entry in enumerate(shown.entries)
    ]


def overlays(shown: ShownScores) -> dict[int, Json]:
    """Return for each run with scores their average by layer, which is drawn over its metrics."""
    found: dict[int, Json] = {}
    for pairing in reversed(shown.pairings):  # of several sites and poolings the first
        average = shown.entries[pairing.scored].average
        told = [shown.told(value) for value in average.values()]
        found[pairing.run] = {"layers": list(average), "values": list(average.values()), "told": told}
    return found


def judged_on(shown: ShownScores) -> str:
    """Return the one task, or how many there are."""
    tasks = list(dict.fromkeys(task for entry in shown.entries for task in entry.tasks))
    return plain(tasks[0]) if len(tasks) == 1 else f"{len(tasks):,} tasks"


def resampled(shown: ShownScores) -> str:
    """Say over how many layers correlations run, and what their intervals resample."""
    metrics = [metric for pairing in shown.pairings for metric in pairing.metrics]
    layers, tasks = max(m.layers for m in metrics), max(m.tasks for m in metrics)
    what = f"{layers} layers (layer 0 left out)"
    return f"{what}. " + (LAYERS if tasks == 1 else INTERVALS.format(f"{tasks} tasks"))

"""Thresholds with a guarantee, from a model and data; and which exits are worth their cost."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from typing import Annotated, Any, Unpack

import numpy as np

from layerscope.core.errors import LayerscopeError
from layerscope.core.option_kinds import Whole
from layerscope.core.options import checked
from layerscope.core.progress import reporting
from layerscope.core.shared_options import Reading
from layerscope.early_exit.calibration import Calibration, calibrate_recorded, greediest
from layerscope.early_exit.cost_model import Plan, Prediction, Rows, Simulation, Times
from layerscope.early_exit.criteria import NEVER
from layerscope.early_exit.exit_model import ExitModel
from layerscope.early_exit.guarantee import Goal, check_enough, split
from layerscope.early_exit.recorded import Recorded, record
from layerscope.early_exit.saving import fingerprint, precision
from layerscope.early_exit.study import Accuracy, Confidence, Disagreement
from layerscope.early_exit.validation import in_order, read_validation

Exits = tuple[int, ...]


def calibrate(
    model: ExitModel,
    data: Any,
    max_disagreement: Disagreement = None,
    min_accuracy: Accuracy = None,
    confidence: Confidence = 0.95,
    *,
    batch_size: Annotated[int, Whole(1)] = 32,
    progress: bool = True,
    **reading: Unpack[Reading],
) -> Calibration:
    """Return the greediest threshold for a model's exits and criterion that is certified to meet a goal.

    With probability `confidence` over the draw of the data, on new samples like them: at most `max_disagreement` of the
    predictions differ from the full model's (no labels needed), or at least `min_accuracy` are right. `model.use` sets
    it. Exits and criterion must not have been chosen on these data.

    Args:
        model: the exit model; its exits and criterion stay as they are.
        data: samples the model was not trained on, as for `layerscope.profile`.
        max_disagreement: largest share of predictions that may differ, 0 … 1; 0.01 where neither goal is given.
        min_accuracy: smallest accuracy, 0 … 1; needs labels.
        confidence: confidence level of the guarantee, 1 − δ.
        batch_size: samples per forward.
        progress: show a bar on standard error.
        **reading: how a table of samples is read: `Reading`.

    Raises:
        LayerscopeError: for too few samples for the goal (the error says how many are needed), for missing labels,
            and for an accuracy that the full model does not reach.

    Source: Angelopoulos et al. 2021, Learn then Test.

    Example:
        >>> from layerscope.early_exit import ExitModel, calibrate
        >>> model = ExitModel("tiny-bert", exits=[1, 2])
        >>> model = model.use(calibrate(model, "reviews.csv", max_disagreement=0.3, progress=False))
        >>> model.criterion, model.threshold < 1
        ('confidence', True)

    """
    asked = checked(calibrate, locals())
    if not isinstance(model, ExitModel):
        raise LayerscopeError(f"calibrate takes an ExitModel, not a {type(model).__name__}: wrap it, ExitModel(model)")
    goal = asked.of(Goal)
    reporter = reporting(progress)
    read = read_validation(model, data, needs_labels=min_accuracy is not None, **reading)
    check_enough(len(read), goal)
    for note in read.notes:
        reporter.say(note)
    with reporter.bar("calibration", len(read), "samples") as advance:
        recorded = record(model, map(read.batch, read.plan(batch_size)), read.labels, advance)
    return _certified(model, recorded, model.exits, goal)


def certify(
    model: ExitModel, recorded: Recorded, times: Times, goal: Goal, design: Rows, tested: Rows, batch_size: int
) -> Calibration:
    """Return the exits that are worth their cost by the `design` samples, with the threshold that the others certify.

    Without any of the former the model's own exits are taken.
    """
    exits = model.exits
    if len(design):
        part = recorded.take(design)
        plan = in_order(len(part), batch_size)
        exits = choose_exits(part, plan, times, greediest(part, goal, len(tested)), trims=model.trims).exits
    return _certified(model, recorded.take(tested), exits, goal)


def parts(n: int, goal: Goal, seed: int | None) -> tuple[Rows, Rows]:
    """Return the samples that choose the exits, none without a seed, and those that certify the threshold."""
    if seed is not None:
        return split(n, goal, seed)
    check_enough(n, goal)
    return np.arange(0), np.arange(n)


def _certified(model: ExitModel, recorded: Recorded, exits: Exits, goal: Goal) -> Calibration:
    return calibrate_recorded(recorded, exits, goal, fingerprint=fingerprint(model), dtype=precision(model.model))


@dataclass(frozen=True)
class Choice:
    """The exits to check, ascending, the threshold that goes with them, and what they are expected to win.

    No exits, with the threshold inf, are the plain model.
    """

    exits: Exits
    threshold: float
    prediction: Prediction


def choose_exits(
    recorded: Recorded, plan: Plan, times: Times, allowed: Callable[[Exits], float], *, trims: bool = True
) -> Choice:
    """Return the exits that are expected to be fastest, never slower than none.

    `allowed(exits)` is the threshold these exits may have. Of all exits 1 … L − 1 the one is dropped without which the
    rest is fastest, until none is left: about L² / 2 predictions. The fastest set on that way, or the fastest single
    exit, is then bettered by adding, dropping or exchanging one exit as long as that helps.
    """
    simulation = Simulation(recorded, plan, times, trims=trims)

    @cache
    def priced(exits: Exits) -> Choice:
        threshold = allowed(exits) if exits else NEVER
        return Choice(exits, threshold, simulation.run(exits, threshold))

    every = tuple(range(1, recorded.depth))
    best = _fastest(map(priced, ((), every, *combinations(every, 1))))
    current = priced(every)
    while len(current.exits) > 1:
        current = _fastest(map(priced, combinations(current.exits, len(current.exits) - 1)))
        best = _fastest((best, current))
    while (better := _fastest(map(priced, _near(best.exits, every)))) is not best:
        best = better
    return best


def _fastest(choices: Iterable[Choice]) -> Choice:
    return min(choices, key=lambda choice: (choice.prediction.seconds, len(choice.exits)))


def _near(exits: Exits, every: Exits) -> Iterator[Exits]:
    """Yield these exits, and those with one more, one less, or one exchanged for another."""
    others = set(every).difference(exits)
    fewer = tuple(combinations(exits, len(exits) - 1)) if exits else ()
    yield from (exits, *fewer)
    for kept in (exits, *fewer):
        yield from (tuple(sorted((*kept, layer))) for layer in others)

"""Thresholds with a guarantee, from a model and data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from layerscope.core.errors import LayerscopeError
from layerscope.core.progress import Console, Silent, Teller
from layerscope.early_exit.calibration import Calibration, along, calibrate_recorded, path
from layerscope.early_exit.choosing import choose_exits
from layerscope.early_exit.cost_model import Times
from layerscope.early_exit.criteria import NEVER
from layerscope.early_exit.exit_model import ExitModel
from layerscope.early_exit.exit_options import ExitOptions
from layerscope.early_exit.guarantee import Goal, check_enough, p_value, split
from layerscope.early_exit.recorded import Recorded, record
from layerscope.early_exit.saving import fingerprint, precision
from layerscope.early_exit.validation import Rows, in_order, read_validation


def calibrate(
    model: ExitModel,
    data: Any,
    max_disagreement: float | None = None,
    min_accuracy: float | None = None,
    confidence: float = 0.95,
    *,
    batch_size: int = 32,
    text_column: str | None = None,
    label_column: str | None = None,
    max_length: int | None = None,
    progress: bool = True,
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
        text_column: column of the texts; by default it is guessed.
        label_column: column of the labels; by default it is guessed.
        max_length: longest text, in tokens.
        progress: show a bar on standard error.

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
    if not isinstance(model, ExitModel):
        raise LayerscopeError(f"calibrate takes an ExitModel, not a {type(model).__name__}: wrap it, ExitModel(model)")
    goal = ExitOptions(max_disagreement, min_accuracy, confidence, batch_size).goal
    needed = min_accuracy is not None
    read = read_validation(
        model, data, text_column=text_column, label_column=label_column, max_length=max_length, needs_labels=needed
    )
    check_enough(len(read), goal)
    teller: Teller = Console() if progress else Silent()
    for note in read.notes:
        teller.say(note)
    with teller.bar("calibration", len(read), "samples") as advance:
        labels = None if read.labels is None else read.labels.tolist()
        recorded = record(model, read.batches(read.plan(batch_size)), labels, advance)
    return _named(calibrate_recorded(recorded, model.exits, goal), model)


def certify(model: ExitModel, recorded: Recorded, times: Times, options: ExitOptions) -> Calibration:
    """Return the exits that are worth their cost, chosen on some samples, with the threshold that the others certify.

    Where the options name exits, those are taken and all samples certify.
    """
    design, tested = parts(len(recorded), options)
    exits = model.exits
    if options.exits is None:
        part = recorded.take(design)
        plan = in_order(len(part), options.batch_size)
        exits = choose_exits(part, plan, times, _allowed(part, options.goal, len(tested)), trims=model.trims).exits
    return _named(calibrate_recorded(recorded.take(tested), exits, options.goal), model)


def _named(calibration: Calibration, model: ExitModel) -> Calibration:
    """Return a calibration that says which weights it is of, in which precision."""
    return replace(calibration, fingerprint=fingerprint(model), dtype=precision(model.model))


def parts(n: int, options: ExitOptions) -> tuple[Rows, Rows]:
    """Return the samples that choose the exits, none where they are given, and those that certify the threshold."""
    if options.exits is None:
        return split(n, options.goal, seed=options.seed)
    check_enough(n, options.goal)
    return np.arange(0), np.arange(n)


def _allowed(design: Recorded, goal: Goal, tested: int) -> Callable[[Sequence[int]], float]:
    """Return what gives exits their greediest threshold with the share of errors that `tested` samples may have."""
    errors = np.arange(tested + 1)
    most = np.flatnonzero(p_value(errors, tested, goal.risk) <= goal.delta).max() / tested
    wanted = design.full if design.labels is None or goal.max_disagreement is not None else design.labels

    def threshold(exits: Sequence[int]) -> float:
        thresholds = (NEVER, *path(design.criterion, design.classes, exits))
        at = np.asarray([*exits, design.depth]) - 1
        found = along(design, exits, thresholds, design.predictions[:, at] != wanted[:, None])
        over = np.flatnonzero(found > most * len(design))
        return thresholds[max(0, over[0] - 1)] if len(over) else thresholds[-1]

    return threshold

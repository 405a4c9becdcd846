"""Thresholds with a guarantee, from a model and data."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from layerscope.early_exit.calibration import Calibration, calibrate_recorded
from layerscope.early_exit.exit_model import ExitModel
from layerscope.early_exit.guarantee import Goal, check_enough
from layerscope.early_exit.recording import record
from layerscope.early_exit.saving import fingerprint
from layerscope.early_exit.validation import read_validation
from layerscope.progress import Console, Silent, Teller

MAX_DISAGREEMENT = 0.01


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
        model: whose exits and criterion are taken as they are.
        data: samples the model was not trained on: as for `layerscope.profile`.
        max_disagreement: 0 … 1; 0.01 where neither goal is given.
        min_accuracy: 0 … 1, which needs labels.
        confidence: 1 − δ.
        batch_size: of the pass over the data.
        text_column: of a table; None is guessed.
        label_column: of a table; None is guessed.
        max_length: tokens of a text at most.
        progress: show a bar on standard error.

    Raises:
        LayerscopeError: for data that are too few for the goal (with how many are needed), for labels that are
            missing, and for an accuracy that the full model has not.

    Source: Angelopoulos et al. 2021, Learn then Test.

    """
    goal = goal_of(max_disagreement, min_accuracy, confidence)
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
    return replace(calibrate_recorded(recorded, model.exits, goal), fingerprint=fingerprint(model.model))


def goal_of(max_disagreement: float | None, min_accuracy: float | None, confidence: float) -> Goal:
    """Return the goal that is asked for; at most 1 % disagreement where none is."""
    if max_disagreement is None and min_accuracy is None:
        max_disagreement = MAX_DISAGREEMENT
    return Goal(max_disagreement, min_accuracy, confidence)

"""The work of `exits`: which layers to leave at, from which threshold on, what that gains, and if it pays."""

import math
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Unpack

import numpy as np
import pandas as pd
from torch import nn

import layerscope.early_exit.calibration as exact
from layerscope.core import processes
from layerscope.core.errors import LayerscopeError
from layerscope.core.files import folder_aside
from layerscope.core.option_kinds import Whole
from layerscope.core.options import Reading, checked
from layerscope.core.progress import Reporter, reporting
from layerscope.core.saved import jsonable
from layerscope.core.stopwatch import machine
from layerscope.early_exit.calibration import Calibration
from layerscope.early_exit.cost_model import Costs, Exits, choose_exits
from layerscope.early_exit.draft_study import study_drafts
from layerscope.early_exit.exit_model import ExitModel, IsLanguageModelError
from layerscope.early_exit.exit_report import STORE, ExitReport
from layerscope.early_exit.findings import judged
from layerscope.early_exit.options import (
    FOR_CLASSIFIERS,
    FOR_LANGUAGE_MODELS,
    Accuracy,
    CalibrateOptions,
    Confidence,
    Disagreement,
    ExitsOptions,
    Goal,
)
from layerscope.early_exit.predictions import NEVER, Layers, Recorded, check_threshold
from layerscope.early_exit.saving import (
    STORE as MODELS,
    foreign_files,
    precision,
)
from layerscope.early_exit.timing import Raced, measure_costs, race_exits
from layerscope.early_exit.validation import Validation, read_validation, record_all
from layerscope.generation import draft_report
from layerscope.generation.decoder import language_model
from layerscope.generation.draft_report import DraftReport
from layerscope.metrics import exit_speedup
from layerscope.truncation.costs import parameters

STATED = "no guarantee: the threshold was fixed, not calibrated"
MODEL = "model"
"""The folder of the exit model within that of the report."""
SAMPLES, BATCH = 5000, 32
"""Samples, and samples in a batch, where none are given."""


@dataclass(frozen=True)
class Served:
    """Samples in batches, what every layer says of them, where they leave, and from which threshold on.

    Without a `calibration` exits and threshold were stated; `design` samples chose the exits.
    """

    samples: Validation
    recorded: Recorded
    batch_size: int
    exits: Exits
    threshold: float
    calibration: Calibration | None = None
    design: int = 0


def study_exits(options: ExitsOptions) -> ExitReport | DraftReport:
    """Return the report on exits of a classifier, or on drafts of a language model."""
    if options.out is not None and not draft_report.STORE.is_in(options.out):
        _folder(options.out)  # what is wrong with it is said before the model is loaded
    if options.threshold is not None:
        check_threshold(options.threshold)
        for bound in ("max_disagreement", "min_accuracy"):
            if bound in options.changed:
                raise LayerscopeError(
                    f"`{bound}` calibrates the threshold and `threshold` fixes it: give one of the two"
                )
    try:
        model = ExitModel(
            options.model,
            exits=None if options.exits is None else sorted({*options.exits}),
            criterion=options.criterion,
            processor=options.processor,
            **options.loading,
        )
    except IsLanguageModelError as error:
        options.refuse(
            FOR_CLASSIFIERS, "is for classifiers, and this is a language model"
        )
        return study_drafts(options, language_model(error.loaded, options.override))
    options.refuse(
        FOR_LANGUAGE_MODELS, "is for language models, and this is a classifier"
    )
    return study_classifier(options, model)


def study_classifier(options: ExitsOptions, model: ExitModel) -> ExitReport:
    """Choose exits and threshold on the data, certify them, and measure what they gain."""
    out, goal = options.out, options.goal
    if out is not None:
        _folder(out)
    samples = read_validation(
        model,
        options.data,
        samples=options.samples or SAMPLES,
        seed=options.seed,
        needs_labels=goal.min_accuracy is not None,
        **options.reading,
    )
    team = processes.team()
    reporter = reporting(options.progress and team.leads)
    for note in samples.notes:
        reporter.say(note)
    batch_size = (options.batch_size or BATCH) if samples.together else 1
    design, tested = np.arange(0), np.arange(len(samples))
    if options.threshold is None:  # too few samples are refused before the long pass
        if options.exits is None:
            design, tested = exact.split(len(samples), goal, options.seed)
        exact.check_enough(len(tested), goal)
    with reporter.bar("every layer", len(samples), "samples") as advance:
        recorded = record_all(model, samples, batch_size, advance, team.each)

    def measured() -> ExitReport:
        served = Served(
            samples, recorded, batch_size, model.exits, options.threshold or 0.0
        )
        if options.threshold is None:
            exits = model.exits
            if len(design):
                costs = measure_costs(model, samples, batch_size, reporter)
                exits = chosen_exits(
                    recorded.take(design), costs, batch_size, len(tested), goal
                )
            made = _certified(model, recorded.take(tested), exits, goal)
            served = replace(
                served,
                exits=made.exits,
                threshold=made.threshold,
                calibration=made,
                design=len(design),
            )
        report = _report(model, served, options.min_speedup, reporter)
        return report if out is None else _saved(report, model, served.calibration, out)

    return team.lead(measured)


def _report(
    model: ExitModel, served: Served, min_speedup: float, reporter: Reporter
) -> ExitReport:
    """Race the chosen exits, the plain model and the truncated ones, and return the report."""
    samples, recorded = served.samples, served.recorded
    exits, threshold = served.exits, served.threshold
    raced_exits = exits or tuple(range(1, model.depth))
    if not exits:
        threshold = NEVER
    thresholds = exact.thresholds_shown(recorded, raced_exits, threshold)
    plan = samples.plan(served.batch_size)
    raced = race_exits(model, samples, plan, raced_exits, thresholds, reporter)
    curve = curve_table(recorded, raced_exits, thresholds, threshold, raced)
    row = curve[curve["chosen"]].iloc[0]
    measured, error = float(row["measured"]), float(row["error"])
    pays, verdict = judged(measured, error, min_speedup)
    leaving = recorded.leaves(exits, threshold)
    layers, depths = _by_layer(model, recorded, raced, exits, leaving)
    return ExitReport(
        model=model.layered.loaded.name,
        depth=model.depth,
        classes=model.classes,
        criterion=model.criterion,
        exits=exits,
        threshold=threshold,
        batch_size=served.batch_size,
        samples=len(samples),
        design=served.design,
        data=samples.name,
        machine=machine(model.device),
        goal=str(served.calibration or STATED),
        calibration=jsonable(served.calibration),
        pays=pays,
        verdict=verdict if pays else f"{verdict}; use the plain model",
        measured=measured,
        error=error,
        accuracy=recorded.accuracy(leaving),
        plain_accuracy=recorded.accuracy(np.full(len(samples), model.depth)),
        disagreement=float(recorded.disagrees(leaving).mean()),
        plain_milliseconds=raced.milliseconds,
        path=None,
        curve=curve,
        layers=layers,
        depths=depths,
        notes=(*samples.notes, *raced.notes),
    )


def _saved(
    report: ExitReport, model: ExitModel, calibration: Calibration | None, out: Path
) -> ExitReport:
    """Write the report, and the exit model where exits pay; what an earlier report left there is gone."""
    # the job was long: what came into the folder since is not ours to delete
    _folder(out)
    # without the model until that is whole: a run that is killed here can be repeated
    report.save(out)
    if (out / MODEL).is_dir():
        shutil.rmtree(out / MODEL)
    if report.pays:
        model.leave(report.exits, report.threshold, report.criterion)
        if calibration is not None:
            model.use(calibration)
        try:
            with folder_aside(out / MODEL) as aside:
                model.save_pretrained(aside, report)
            report = replace(report, path=str(out / MODEL))
        except LayerscopeError as error:
            note = f"no exit model is written: {error}"
            report = replace(report, notes=(*report.notes, note))
        report.save(out)
    return report


def _folder(out: str | Path) -> Path:
    """Return the folder of a report, new or an earlier one's, whose model holds nothing but what was saved with it."""
    folder = STORE.folder(out)
    MODELS.folder(folder / MODEL)
    if others := foreign_files(folder / MODEL):
        raise LayerscopeError(
            f"{str(folder / MODEL)!r} holds {others[0]!r}, which no exit model was saved with: name a new folder"
        )
    return folder


def curve_table(
    recorded: Recorded,
    exits: Exits,
    thresholds: Sequence[float],
    chosen: float,
    raced: Raced,
) -> pd.DataFrame:
    """Return a row for each threshold: how deep samples come, what that wins by depth, and what was measured."""
    rows = []
    for threshold in thresholds:
        leaving = recorded.leaves(exits, threshold)
        counts = np.bincount(leaving, minlength=recorded.depth + 1)[1:]
        measured, error = raced.speedups["threshold", threshold]
        rows.append(
            {
                "threshold": threshold,
                "chosen": threshold == chosen,
                "mean_layer": leaving.mean(),
                "exit_speedup": exit_speedup(counts.astype(float)),
                "measured": measured,
                "error": error,
                "accuracy": recorded.accuracy(leaving),
                "disagreement": recorded.disagrees(leaving).mean(),
            }
        )
    return pd.DataFrame(rows)


def _by_layer(
    model: ExitModel, recorded: Recorded, raced: Raced, exits: Exits, leaving: Layers
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return how many leave at each layer, and the model truncated at each."""
    every, blocks = range(1, recorded.depth + 1), model.layered.stack.blocks
    counts = np.bincount(leaving, minlength=recorded.depth + 1)[1:]
    share = counts / len(recorded)
    depths = []
    for layer in every:
        gone = map(model.model.get_submodule, set(blocks[layer:]) - set(blocks[:layer]))
        measured, error = raced.speedups.get(("layer", layer), (math.nan, math.nan))
        here = np.full(len(recorded), layer)
        depths.append(
            {
                "layer": layer,
                "accuracy": recorded.accuracy(here),
                "disagreement": recorded.disagrees(here).mean(),
                "measured": measured,
                "error": error,
                "parameters": parameters(model.model) - parameters(nn.ModuleList(gone)),
            }
        )
    layers = {
        "layer": every,
        "checked": np.isin(every, exits),
        "leaving": counts,
        "share": share,
        "cumulative": share.cumsum(),
    }
    return pd.DataFrame(layers), pd.DataFrame(depths)


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

    With probability `confidence` over the draw of the data, on new samples like them: at most
    `max_disagreement` of the predictions differ from the full model's (no labels needed), or at
    least `min_accuracy` are right. `model.use` sets it. Exits and criterion must not have been
    chosen on these data. Raises `LayerscopeError` for too few samples for the goal (and says how
    many are needed), missing labels, and an accuracy that the full model does not reach.

    Args:
        model: the exit model; its exits and criterion stay as they are.
        data: samples the model was not trained on, as for `layerscope.profile`.
        max_disagreement: largest share of predictions that may differ, 0 … 1; 0.01 where neither
            goal is given.
        min_accuracy: smallest accuracy, 0 … 1; needs labels.
        confidence: confidence level of the guarantee, 1 − δ.
        batch_size: samples per forward.
        progress: show a bar on standard error.
        **reading: how a table of samples is read: `Reading`.

    Source: Angelopoulos et al. 2021, Learn then Test.

    Example:
        >>> from layerscope.early_exit import ExitModel, calibrate
        >>> model = ExitModel("tiny-bert", exits=[1, 2])
        >>> model = model.use(calibrate(model, "reviews.csv", max_disagreement=0.3, progress=False))
        >>> model.criterion, model.threshold < 1
        ('confidence', True)

    """
    goal = checked(calibrate, locals(), CalibrateOptions).goal
    if not isinstance(model, ExitModel):
        raise LayerscopeError(
            f"calibrate takes an ExitModel, not a {type(model).__name__}: wrap it, ExitModel(model)"
        )
    reporter = reporting(progress)
    samples = read_validation(
        model, data, needs_labels=min_accuracy is not None, **reading
    )
    exact.check_enough(len(samples), goal)
    for note in samples.notes:
        reporter.say(note)
    with reporter.bar("calibration", len(samples), "samples") as advance:
        recorded = record_all(model, samples, batch_size, advance)
    return _certified(model, recorded, model.exits, goal)


def chosen_exits(
    recorded: Recorded, costs: Costs, batch_size: int, tested: int, goal: Goal
) -> Exits:
    """Return the exits worth their cost by some samples, at a threshold that as many as are `tested` could certify.

    It is the greediest with the share of errors that those may have.
    """
    errors = np.arange(tested + 1)
    most = (
        np.flatnonzero(exact.p_value(errors, tested, goal.risk) <= goal.delta).max()
        / tested
    )
    wanted = recorded.full
    if recorded.labels is not None and goal.max_disagreement is None:
        wanted = recorded.labels

    def allowed(exits: Exits) -> float:
        thresholds = (NEVER, *exact.path(recorded.criterion, recorded.classes, exits))
        wrong = exact.errors_along(recorded, exits, thresholds, wanted)
        over = np.flatnonzero(wrong > most * len(recorded))
        return thresholds[max(0, over[0] - 1)] if len(over) else thresholds[-1]

    return choose_exits(recorded, costs, batch_size, allowed)


def _certified(
    model: ExitModel, recorded: Recorded, exits: Exits, goal: Goal
) -> Calibration:
    return exact.calibrate_recorded(
        recorded,
        exits,
        goal,
        fingerprint=model.fingerprint(),
        dtype=precision(model.model),
    )

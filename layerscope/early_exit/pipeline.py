"""The work of `exits`: which layers to leave at, from which threshold on, what that gains, and if it pays.

The samples are read, and what every layer says of them is recorded in one pass. On some of them
exits are chosen, on the others the threshold is certified. Then exits race the plain model and the
truncated ones, it is judged whether they pay, and the report is saved, with the model where they do.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
from torch import nn

from layerscope.core import (
    LayerscopeError,
    Reporter,
    jsonable,
    machine,
    processes,
    reporting,
)
from layerscope.core.folders import folder_aside
from layerscope.early_exit.calibration import (
    affordable_threshold,
    calibrate_recorded,
    check_enough,
    split,
    thresholds_shown,
)
from layerscope.early_exit.cost_model import Exits, choose_exits
from layerscope.early_exit.draft_study import study_drafts
from layerscope.early_exit.exit_model import ExitModel, IsLanguageModelError
from layerscope.early_exit.exit_report import STORE, ExitReport
from layerscope.early_exit.findings import judged
from layerscope.early_exit.options import ExitsOptions
from layerscope.early_exit.predictions import NEVER, Layers, Recorded, check_threshold
from layerscope.early_exit.timing import Raced, measure_costs, race_exits
from layerscope.early_exit.validation import Validation, read_validation, record_all
from layerscope.generation import DraftReport, draft_report
from layerscope.generation.language_model import language_model
from layerscope.inputs.opening import check_there
from layerscope.models import dtype_of, parameters

FOR_CLASSIFIERS = ("threshold",)
FOR_LANGUAGE_MODELS = ("prefix", "max_new_tokens", "draft_tokens")
STATED = "no guarantee: the threshold was fixed, not calibrated"
MODEL = "model"
"""The folder of the exit model within that of the report."""
SAMPLES = 5000
"""Number of samples where none is given."""
BATCH = 32
"""Samples in a batch where no number is given."""


def study_exits(options: ExitsOptions) -> ExitReport | DraftReport:
    """Return the report on exits of a classifier, or on drafts of a language model."""
    if options.threshold is not None:
        check_threshold(options.threshold)
        if "max_disagreement" in options.changed:
            raise LayerscopeError(
                "`max_disagreement` calibrates the threshold and `threshold` fixes it: give one of the two"
            )
    # before the model is loaded
    check_there(options.data)
    if options.out is not None and not draft_report.STORE.is_in(options.out):
        model_folder = STORE.folder(options.out) / MODEL
        if model_folder.exists():
            raise LayerscopeError(
                f"{str(model_folder)!r} exists: delete it, or name a new folder"
            )
    try:
        model = ExitModel(
            options.model,
            exits=options.exits,
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
    goal = options.goal
    samples = read_validation(
        model,
        options.data,
        samples=options.samples or SAMPLES,
        seed=options.seed,
        **options.reading,
    )
    team = processes.team()
    reporter = reporting(options.progress and team.leads)
    for note in samples.notes:
        reporter.say(note)
    batch_size = 1
    if samples.together:
        batch_size = options.batch_size or BATCH
    # design: choose exits; tested: certify the threshold, on samples that the choice never saw
    design = np.arange(0)
    tested = np.arange(len(samples))
    if options.threshold is None:  # too few samples are refused before the long pass
        if options.exits is None:
            design, tested = split(len(samples), goal, options.seed)
        check_enough(len(tested), goal)
    with reporter.bar("every layer", len(samples), "samples") as advance:
        recorded = record_all(model, samples, batch_size, advance, team.each)

    def race() -> ExitReport:
        exits = model.exits
        if len(design):
            costs = measure_costs(model, samples, batch_size, reporter)
            chosen_on = recorded.take(design)
            # at a threshold that as many samples as are tested could certify
            allowed = partial(
                affordable_threshold, chosen_on, tested=len(tested), goal=goal
            )
            exits = choose_exits(chosen_on, costs, batch_size, allowed)
        _set_exits(model, exits, recorded.take(tested), options)
        report = _report(
            model,
            samples,
            recorded,
            batch_size,
            reporter,
            design=len(design),
            min_speedup=options.min_speedup,
        )
        if options.out is None:
            return report
        return _saved(report, model, options.out)

    # one process measures and the others idle, for clean timings
    return team.lead(race)


def _set_exits(
    model: ExitModel, exits: Exits, tested: Recorded, options: ExitsOptions
) -> None:
    """Let samples leave at the threshold of the options, or at the one that is certified on those `tested`."""
    if options.threshold is not None:
        model.leave(exits, options.threshold)
        return
    calibration = calibrate_recorded(
        tested,
        exits,
        options.goal,
        fingerprint=model.fingerprint(),
        dtype=dtype_of(model.model),
    )
    model.use(calibration)


def _report(
    model: ExitModel,
    samples: Validation,
    recorded: Recorded,
    batch_size: int,
    reporter: Reporter,
    *,
    design: int,
    min_speedup: float,
) -> ExitReport:
    """Race the exits, the plain model and the truncated ones, and return the report with its verdict."""
    exits = model.exits
    threshold = model.threshold
    raced_exits = exits
    if not exits:
        raced_exits = tuple(range(1, model.depth))
        threshold = NEVER
    thresholds = thresholds_shown(recorded, raced_exits, threshold)
    plan = samples.plan(batch_size)
    raced = race_exits(model, samples, plan, raced_exits, thresholds, reporter)
    curve = curve_table(recorded, raced_exits, thresholds, threshold, raced)
    measured, error = raced.speedups["threshold", threshold]
    pays, verdict = judged(measured, error, min_speedup)
    if not pays:
        verdict = f"{verdict}; use the plain model"
    leaving = recorded.leaves(exits, threshold)
    return ExitReport(
        model=model.layered.name,
        depth=model.depth,
        classes=model.classes,
        exits=exits,
        threshold=threshold,
        batch_size=batch_size,
        samples=len(samples),
        design=design,
        data=samples.name,
        machine=machine(model.device),
        goal=str(model.calibration or STATED),
        calibration=jsonable(model.calibration),
        pays=pays,
        verdict=verdict,
        measured=measured,
        error=error,
        accuracy=recorded.accuracy(leaving),
        plain_accuracy=recorded.accuracy(recorded.whole),
        disagreement=recorded.disagreement(leaving),
        plain_milliseconds=raced.milliseconds,
        path=None,
        curve=curve,
        layers=layer_table(recorded, exits, leaving),
        depths=depth_table(model, recorded, raced),
        notes=(*samples.notes, *raced.notes),
    )


def _saved(report: ExitReport, model: ExitModel, out: Path) -> ExitReport:
    """Write the report, and the exit model where exits pay."""
    # without the model until that is whole: a run that is killed here can be repeated
    report.save(out)
    if report.pays:
        try:
            with folder_aside(out / MODEL) as aside:
                model.save_pretrained(aside, report)
            report = replace(report, path=str(out / MODEL))
        except LayerscopeError as error:
            note = f"no exit model is written: {error}"
            report = replace(report, notes=(*report.notes, note))
        report.save(out)
    return report


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
        mean_layer = leaving.mean()
        measured, error = raced.speedups["threshold", threshold]
        row = {
            "threshold": threshold,
            "chosen": threshold == chosen,
            "mean_layer": mean_layer,
            "exit_speedup": recorded.depth / mean_layer,
            "measured": measured,
            "error": error,
        }
        rows.append(row | _quality(recorded, leaving))
    return pd.DataFrame(rows)


def _quality(recorded: Recorded, leaving: Layers) -> dict[str, float | None]:
    """Return how good predictions are where samples leave at these layers."""
    return {
        "accuracy": recorded.accuracy(leaving),
        "disagreement": recorded.disagreement(leaving),
    }


def layer_table(recorded: Recorded, exits: Exits, leaving: Layers) -> pd.DataFrame:
    """Return a row for each layer: whether it is an exit, and how many leave there."""
    layers = range(1, recorded.depth + 1)
    counts = np.bincount(leaving, minlength=recorded.depth + 1)[1:]
    share = counts / len(recorded)
    columns = {
        "layer": layers,
        "checked": np.isin(layers, exits),
        "leaving": counts,
        "share": share,
        "cumulative": share.cumsum(),
    }
    return pd.DataFrame(columns)


def depth_table(model: ExitModel, recorded: Recorded, raced: Raced) -> pd.DataFrame:
    """Return a row for each layer: the quality, speed and size of the model truncated there."""
    blocks = model.layered.stack.blocks
    size = parameters(model.model)
    rows = []
    for layer in range(1, recorded.depth + 1):
        # a block that runs several times stays while one of its runs does
        dropped = {*blocks[layer:]} - {*blocks[:layer]}
        modules = nn.ModuleList(map(model.model.get_submodule, dropped))
        not_measured = math.nan, math.nan
        measured, error = raced.speedups.get(("layer", layer), not_measured)
        row: dict[str, float | None] = {
            "layer": layer,
            "measured": measured,
            "error": error,
            "parameters": size - parameters(modules),
        }
        rows.append(row | _quality(recorded, np.full(len(recorded), layer)))
    return pd.DataFrame(rows)

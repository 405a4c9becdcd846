"""The work of `exits`: which layers to leave at, from which threshold on, what that gains, and if it pays."""

from __future__ import annotations

import math
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from torch import nn

from layerscope.core.errors import LayerscopeError
from layerscope.core.files import folder_aside
from layerscope.core.options import Asked
from layerscope.core.progress import Reporter, reporting
from layerscope.core.saved import jsonable
from layerscope.core.shared_options import Loading, Reading
from layerscope.core.stopwatch import machine
from layerscope.early_exit.calibration import Calibration, along, path
from layerscope.early_exit.cost_model import Simulation
from layerscope.early_exit.criteria import NEVER
from layerscope.early_exit.exit_model import ExitModel
from layerscope.early_exit.exit_report import STORE, ExitReport
from layerscope.early_exit.guarantee import Goal
from layerscope.early_exit.racing import Raced, race_alone, race_exits
from layerscope.early_exit.recorded import Layers, Recorded, record
from layerscope.early_exit.saving import STORE as MODELS, strangers
from layerscope.early_exit.thresholds import certify, parts
from layerscope.early_exit.timing import measure_times
from layerscope.early_exit.validation import Validation, read_validation
from layerscope.metrics import exit_speedup
from layerscope.models.weights import HEADS
from layerscope.truncation.speed import parameters

MODEL = "model"
"""The folder of the exit model within that of the report."""
SHOWN = 9
"""Thresholds of the curve beside the one that was chosen."""


def study_exits(asked: Asked) -> ExitReport:
    """Do what `exits` is asked for."""
    goal, out = asked.of(Goal), None if asked.out is None else _folder(asked.out)
    loading, reading = ({name: vars(asked)[name] for name in kind.__annotations__} for kind in (Loading, Reading))
    exits = None if asked.exits is None else sorted(set(asked.exits))
    model = ExitModel(asked.model, exits=exits, criterion=asked.criterion, processor=asked.processor, **loading)
    read = read_validation(
        model, asked.data, samples=asked.samples, seed=asked.seed, needs_labels=goal.min_accuracy is not None, **reading
    )
    if model.exit_heads:
        own = f"layers with a head of their own, from {HEADS}: {', '.join(model.exit_heads)}"
        read = replace(read, notes=(own, *read.notes))
    reporter = reporting(asked.progress)
    for note in read.notes:
        reporter.say(note)
    batch_size = asked.batch_size if read.together else 1
    seed = asked.seed if exits is None else None
    report, calibration = _report(model, read, goal, batch_size, seed, asked.min_speedup, reporter)
    return report if out is None else _written(report, model, calibration, out)


def _report(
    model: ExitModel, read: Validation, goal: Goal, batch_size: int, seed: int | None, worth: float, reporter: Reporter
) -> tuple[ExitReport, Calibration]:
    """Return the report of exits, chosen by the seed or the model's own, and the calibration behind it."""
    design, tested = parts(len(read), goal, seed)  # too few samples are refused before the long pass over them
    plan = read.plan(batch_size)
    with reporter.bar("every layer", len(read), "samples") as advance:
        recorded = record(model, map(read.batch, plan), read.labels, advance)
    times = measure_times(model, read, recorded.lengths, plan, reporter)
    calibration = certify(model, recorded, times, goal, design, tested, batch_size)
    chosen = calibration.exits
    shown = chosen or tuple(range(1, model.depth))
    threshold = calibration.threshold if chosen else NEVER
    thresholds = thresholds_shown(recorded, shown, threshold)
    raced = race_exits(model, read, plan, shown, thresholds, reporter)
    simulation = Simulation(recorded, raced.plan, times, trims=model.trims)
    curve = curve_table(recorded, shown, thresholds, threshold, simulation, raced)
    row = curve[curve["chosen"]].iloc[0]
    predicted, measured = float(row["predicted"]), float(row["measured"])
    pays, verdict = judged(predicted, measured, worth)
    leaving, labelled = recorded.leaves(chosen, threshold), read.labels is not None
    report = ExitReport(
        model=model.layered.loaded.name, depth=model.depth, classes=model.classes, criterion=model.criterion,
        exits=chosen, threshold=threshold, batch_size=batch_size, samples=len(read), design=len(design),
        data=read.name, machine=machine(model.device), goal=str(calibration), calibration=jsonable(calibration),
        pays=pays, verdict=verdict, predicted=predicted, measured=measured, exit_speedup=float(row["exit_speedup"]),
        path=None,
        accuracy=recorded.accuracy(leaving) if labelled else None,
        plain_accuracy=recorded.accuracy(np.full(len(read), model.depth)) if labelled else None,
        disagreement=float(recorded.disagrees(leaving).mean()),
        plain_milliseconds=raced.plain_milliseconds,
        curve=curve,
        layers=layers_table(recorded, chosen, leaving),
        depths=depths_table(model, recorded, raced),
        notes=(*read.notes, *raced.notes),
        alone=race_alone(model, read, chosen, threshold, reporter) if threshold != NEVER else None,
    )  # fmt: skip
    return report, calibration


def judged(predicted: float, measured: float, worth: float) -> tuple[bool, str]:
    """Return whether a speed-up is `worth` having, in hundredths, as it is shown, and the line that says so."""
    pays = all(round(value, 2) >= worth for value in (predicted, measured) if not math.isnan(value))
    verdict = f"{'pays' if pays else 'does not pay'}: {predicted:.2f}× expected"
    verdict += "" if math.isnan(measured) else f", {measured:.2f}× measured"
    return pays, verdict if pays else f"{verdict}; use the plain model"


def _written(report: ExitReport, model: ExitModel, calibration: Calibration, out: Path) -> ExitReport:
    """Write the report, and the exit model where exits pay; what an earlier report left there is gone.

    The report comes first, without the model until that is whole: a run that is killed here can be repeated.
    """
    _folder(out)  # the job was long: what came into the folder since is not ours to delete
    report.save(out)
    if (out / MODEL).is_dir():
        shutil.rmtree(out / MODEL)
    if report.pays:
        with folder_aside(out / MODEL) as aside:
            model.use(calibration).save_pretrained(aside)
        report = replace(report, path=str(out / MODEL))
        report.save(out)
    return report


def _folder(out: str | Path) -> Path:
    """Return the folder of a report, new or an earlier one's, whose model holds nothing but what was saved with it."""
    folder = STORE.folder(out)
    MODELS.folder(folder / MODEL)
    if others := strangers(folder / MODEL):
        raise LayerscopeError(
            f"{str(folder / MODEL)!r} holds {others[0]!r}, which no exit model was saved with: name a new folder"
        )
    return folder


def thresholds_shown(recorded: Recorded, exits: Sequence[int], chosen: float) -> tuple[float, ...]:
    """Return some thresholds, descending: evenly spaced in the depth that samples reach, with the chosen one."""
    every = path(recorded.criterion, recorded.classes, exits)
    if not every:
        return (chosen,)
    layers = np.broadcast_to([*exits, recorded.depth], (len(recorded), len(exits) + 1))
    reached = along(recorded, exits, every, layers)
    wanted = np.linspace(reached[0], reached[-1], SHOWN)
    nearest = {every[int(np.abs(reached - depth).argmin())] for depth in wanted}
    return tuple(sorted({*nearest, chosen}, reverse=True))


def curve_table(
    recorded: Recorded, exits: Sequence[int], thresholds: Sequence[float], chosen: float, simulation: Simulation,
    raced: Raced,
) -> pd.DataFrame:  # fmt: skip
    """Return a row for each threshold: how deep samples come, what it wins by depth, expected and measured."""
    rows = []
    for threshold in thresholds:
        leaving = recorded.leaves(exits, threshold)
        counts = np.bincount(leaving, minlength=recorded.depth + 1)[1:]
        rows.append(
            {
                "threshold": threshold,
                "chosen": threshold == chosen,
                "mean_layer": leaving.mean(),
                "exit_speedup": exit_speedup(counts.astype(float)),
                "predicted": simulation.run(exits, threshold).speedup,
                "measured": raced.speedup(threshold),
                "accuracy": recorded.accuracy(leaving),
                "disagreement": recorded.disagrees(leaving).mean(),
            }
        )
    return pd.DataFrame(rows)


def layers_table(recorded: Recorded, exits: Sequence[int], leaving: Layers) -> pd.DataFrame:
    """Return a row for each layer: how many leave there, and what all would score if they did."""
    counts = np.bincount(leaving, minlength=recorded.depth + 1)[1:]
    scores = _by_depth(recorded)
    return pd.DataFrame(
        {
            "layer": scores["layer"],
            "checked": scores["layer"].isin(exits),
            "leaving": counts,
            "share": counts / len(recorded),
            "cumulative": counts.cumsum() / len(recorded),
            "layer_accuracy": scores["accuracy"],
            "layer_agreement": 1 - scores["disagreement"],
        }
    )


def depths_table(model: ExitModel, recorded: Recorded, raced: Raced) -> pd.DataFrame:
    """Return a row for the model truncated at each layer: what it scores, wins and weighs."""
    scores = _by_depth(recorded)
    return scores.assign(
        measured=scores["layer"].map(raced.truncated),
        parameters=[_parameters(model, layer) for layer in scores["layer"]],
    )


def _by_depth(recorded: Recorded) -> pd.DataFrame:
    """Return a row for each layer: what all samples would score there."""
    all_at = {layer: np.full(len(recorded), layer) for layer in range(1, recorded.depth + 1)}
    return pd.DataFrame(
        {
            "layer": list(all_at),
            "accuracy": [recorded.accuracy(layers) for layers in all_at.values()],
            "disagreement": [recorded.disagrees(layers).mean() for layers in all_at.values()],
        }
    )


def _parameters(model: ExitModel, layer: int) -> int:
    """Return the weights of a model without the blocks after a layer."""
    blocks = model.layered.stack.blocks
    gone = set(blocks[layer:]) - set(blocks[:layer])
    return parameters(model.model) - parameters(nn.ModuleList(model.model.get_submodule(path) for path in gone))

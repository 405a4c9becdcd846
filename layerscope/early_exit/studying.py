"""The work of `exits`: which layers to leave at, from which threshold on, what that gains, and if it pays."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

from layerscope.core.errors import LayerscopeError
from layerscope.core.folders import folder_aside, own_folder
from layerscope.core.options import Asked
from layerscope.core.progress import Console, Silent, Teller
from layerscope.core.stopwatch import machine
from layerscope.early_exit.calibration import Calibration
from layerscope.early_exit.choosing import Verdict
from layerscope.early_exit.cost_model import Simulation
from layerscope.early_exit.criteria import NEVER
from layerscope.early_exit.exit_model import ExitModel
from layerscope.early_exit.exit_options import ExitOptions
from layerscope.early_exit.exit_report import STORE, ExitReport
from layerscope.early_exit.exit_tables import curve_table, depths_table, layers_table, thresholds_shown
from layerscope.early_exit.racing import race_alone, race_exits
from layerscope.early_exit.recorded import record
from layerscope.early_exit.saving import FILE, strangers
from layerscope.early_exit.thresholds import certify, parts
from layerscope.early_exit.timing import measure_times
from layerscope.early_exit.validation import Validation, read_validation
from layerscope.models.exit_heads import FILE as HEADS

MODEL = "model"
"""The folder of the exit model within that of the report."""


def study_exits(asked: Asked) -> ExitReport:
    """Do what `exits` is asked for."""
    options = asked.of(ExitOptions, exits=None if asked.exits is None else tuple(sorted(set(asked.exits))))
    place = None if asked.out is None else _place(asked.out)
    subject = ExitModel(
        asked.model, exits=options.exits, criterion=options.criterion, processor=asked.processor,
        part=asked.part, blocks=asked.blocks, norm=asked.norm,
        revision=asked.revision, device=asked.device, dtype=asked.dtype, trust_remote_code=asked.trust_remote_code,
        allow_pickle=asked.allow_pickle,
    )  # fmt: skip
    read = read_validation(
        subject, asked.data, text_column=asked.text_column, label_column=asked.label_column,
        max_length=options.max_length, samples=options.samples, needs_labels=options.min_accuracy is not None,
        seed=options.seed,
    )  # fmt: skip
    if subject.exit_heads:
        own = f"layers with a head of their own, from {HEADS}: {', '.join(subject.exit_heads)}"
        read = replace(read, notes=(own, *read.notes))
    teller: Teller = Console() if asked.progress else Silent()
    for note in read.notes:
        teller.say(note)
    if not read.together:
        options = replace(options, batch_size=1)
    return _report(subject, read, options, place, teller)


def _report(model: ExitModel, read: Validation, options: ExitOptions, place: Path | None, teller: Teller) -> ExitReport:
    design, _ = parts(len(read), options)  # too few samples are told before the long pass over them
    plan = read.plan(options.batch_size)
    with teller.bar("every layer", len(read), "samples") as advance:
        labels = None if read.labels is None else read.labels.tolist()
        recorded = record(model, read.batches(plan), labels, advance)
    times = measure_times(model, read.samples, recorded.lengths, plan, teller=teller)
    calibration = certify(model, recorded, times, options)
    chosen = calibration.exits
    shown = chosen or tuple(range(1, model.depth))
    threshold = calibration.threshold if chosen else NEVER
    thresholds = thresholds_shown(recorded, shown, threshold)
    raced = race_exits(model, read, plan, shown, thresholds, teller)
    simulation = Simulation(recorded, raced.plan, times, trims=model.trims)
    curve = curve_table(recorded, shown, thresholds, threshold, simulation, raced)
    row = curve[curve["chosen"]].iloc[0]
    verdict = Verdict(float(row["predicted"]), options.min_speedup, float(row["measured"]))
    leaving = recorded.leaves(chosen, threshold)
    report = ExitReport(
        model=model.layered.loaded.name,
        depth=model.depth,
        classes=model.classes,
        criterion=model.criterion,
        exits=chosen,
        threshold=threshold,
        batch_size=options.batch_size,
        samples=len(read),
        design=len(design),
        data=read.name,
        machine=machine(model.device),
        goal=calibration.told,
        calibration=json.loads(calibration.to_json()),
        pays=verdict.pays,
        verdict=str(verdict),
        predicted=verdict.speedup,
        measured=verdict.measured,
        exit_speedup=float(row["exit_speedup"]),
        path=str(place / MODEL) if verdict.pays and place is not None else None,
        accuracy=None if read.labels is None else recorded.accuracy(leaving),
        plain_accuracy=None if read.labels is None else float((recorded.full == recorded.labels).mean()),
        disagreement=float(recorded.disagrees(leaving).mean()),
        plain_milliseconds=raced.plain_milliseconds,
        curve=curve,
        layers=layers_table(recorded, chosen, leaving),
        depths=depths_table(model, recorded, raced),
        notes=(*read.notes, *raced.notes),
        alone=race_alone(model, read, chosen, threshold, teller) if threshold != NEVER else None,
    )
    if place is not None:
        _write(report, model, calibration, place)
    return report


def _write(report: ExitReport, model: ExitModel, calibration: Calibration, place: Path) -> None:
    """Write the report, and the exit model where there is one to be; what an earlier report left there is gone.

    The report comes first, without the model until that is whole: a run that is killed here can be repeated.
    """
    _place(place)  # the job was long: what came into the folder since is not ours to delete
    replace(report, path=None).save(place)
    if (place / MODEL).is_dir():
        shutil.rmtree(place / MODEL)
    if report.path is not None:
        with folder_aside(place / MODEL) as aside:
            model.use(calibration).save_pretrained(aside)
        report.save(place)


def _place(out: str | Path) -> Path:
    """Return the folder of a report, new or an earlier one's, whose model holds nothing but what was saved with it."""
    place = STORE.folder(out)
    own_folder(place / MODEL, "exit model", FILE)
    if others := strangers(place / MODEL):
        raise LayerscopeError(
            f"{str(place / MODEL)!r} holds {others[0]!r}, which no exit model was saved with: name a new folder"
        )
    return place

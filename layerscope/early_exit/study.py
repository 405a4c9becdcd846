"""The verb `exits`: which layers to leave at, from which threshold on, what that wins on the clock, and if it pays."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from layerscope.core.errors import LayerscopeError
from layerscope.core.folders import folder_aside, own_folder
from layerscope.core.progress import Console, Silent, Teller
from layerscope.core.stopwatch import machine
from layerscope.early_exit.calibration import Calibration
from layerscope.early_exit.choosing import Verdict
from layerscope.early_exit.cost_model import Simulation
from layerscope.early_exit.criteria import NEVER
from layerscope.early_exit.exit_model import ExitModel
from layerscope.early_exit.exit_options import MOST_SAMPLES, ExitOptions
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


def exits(
    model: Any,
    data: Any,
    *,
    max_disagreement: float | None = None,
    min_accuracy: float | None = None,
    confidence: float = 0.95,
    batch_size: int = 32,
    criterion: str = "confidence",
    exits: Sequence[int] | None = None,
    samples: int | None = None,
    min_speedup: float = 1.05,
    max_length: int | None = None,
    text_column: str | None = None,
    label_column: str | None = None,
    part: str | None = None,
    blocks: str | None = None,
    norm: str | None = None,
    revision: str | None = None,
    device: str = "auto",
    dtype: str = "auto",
    allow_pickle: bool = False,
    processor: Any = None,
    seed: int = 0,
    out: str | Path | None = None,
    progress: bool = True,
) -> ExitReport:
    """Return what early exits make of a classifier on this machine, and write the exit model where they pay.

    One pass says what every layer would predict of each sample; the time of every stage is measured at the batch sizes
    in question; a fifth of the samples chooses which exits are worth a check; the others certify the threshold; then
    exits, the plain model and the model truncated at every depth run the same batches in turns.

    Args:
        model: a hub name, a local folder, a loaded transformers classifier or an `ExitModel`.
        data: samples it was not trained on: a file, folder, archive, hf:NAME, or in memory, as for `profile`.
        max_disagreement: the share of predictions, 0 … 1, that may differ from the full model's; 0.01 without a goal.
        min_accuracy: instead of that the least share, 0 … 1, of right predictions; needs labels.
        confidence: with which the goal is to hold, 0 … 1.
        batch_size: samples at once, in the order of the data.
        criterion: "confidence", "margin", "entropy" or "patience".
        exits: the layers to check; None lets the measured costs choose, on samples of their own.
        samples: at most so many, seeded; None is 5,000.
        min_speedup: from which on exits pay; next to 0 the exit model is written whatever it wins.
        max_length: tokens of a text at most.
        text_column: of a table; None is guessed.
        label_column: of a table; None is guessed.
        part: which stack of blocks, where a model has several.
        blocks: path of the module that holds the blocks.
        norm: path of the final norm, or "none".
        revision: of a hub model.
        device: where the model is run.
        dtype: of the weights.
        allow_pickle: load pickled weights.
        processor: tokenizer, image processor or feature extractor, where the model has none.
        seed: of the samples that are drawn.
        out: a folder for report and tables, with the exit model in `model` where exits pay; None writes nothing.
        progress: show bars on standard error.

    Raises:
        LayerscopeError: for every wrong input.

    Example:
        >>> report = layerscope.exits("tiny-bert", "reviews.csv", max_disagreement=0.3, progress=False)
        >>> print(report.goal)
        at most 30 % of predictions on new samples like these differ from the full model's, with 95 % confidence (...)

    """
    options = ExitOptions(
        max_disagreement, min_accuracy, confidence, batch_size, criterion, None if exits is None else tuple(exits),
        MOST_SAMPLES if samples is None else samples, min_speedup, max_length, seed,
    )  # fmt: skip
    place = None if out is None else _place(out)
    subject = ExitModel(
        model, exits=options.exits, criterion=criterion, processor=processor, part=part, blocks=blocks, norm=norm,
        revision=revision, device=device, dtype=dtype, allow_pickle=allow_pickle,
    )  # fmt: skip
    read = read_validation(
        subject, data, text_column=text_column, label_column=label_column, max_length=max_length,
        samples=options.samples, needs_labels=min_accuracy is not None, seed=seed,
    )  # fmt: skip
    if subject.exit_heads:
        own = f"layers with a head of their own, from {HEADS}: {', '.join(subject.exit_heads)}"
        read = replace(read, notes=(own, *read.notes))
    teller: Teller = Console() if progress else Silent()
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

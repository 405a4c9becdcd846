"""The work of `train`: a model and data in, one checkpoint that is useful at every depth out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from importlib.metadata import version
from typing import Any

from layerscope.core.errors import LayerscopeError
from layerscope.core.options import Asked
from layerscope.core.progress import Console, Silent, Teller
from layerscope.inputs.corpus import Corpus, count
from layerscope.inputs.seen import kept
from layerscope.models import LayeredModel
from layerscope.models.encode import encoder_for
from layerscope.training import data as reading, start as starting
from layerscope.training.card import write_card
from layerscope.training.depths import Trained, check_depths, compare, shallower
from layerscope.training.fit import Job, check_reports, fit, is_main, standard
from layerscope.training.folder import BASELINES, REPORT, Place, nothing_left, open_place
from layerscope.training.presets import told
from layerscope.training.settings import Settings, settings_of
from layerscope.training.trainer import layered_model
from layerscope.training.weights import exit_weights


def run_training(asked: Asked, settings: dict[str, Any]) -> Trained:
    """Do what `train` is asked for; return what every depth scores and costs, in the process that writes."""
    depths = asked.baseline_depths or ()
    preset, as_printed, from_config, part = asked.preset, asked.as_printed, asked.from_config, asked.part
    wanted = settings_of(settings, preset, as_printed=as_printed)
    teller: Teller = Console() if asked.progress and is_main() else Silent()
    if preset is not None:
        teller.say(told(preset, settings, as_printed=as_printed))
    columns = reading.Columns(asked.text_column, asked.label_column)
    origin = starting.find(asked.model, from_config=from_config)
    source = reading.read(asked.train, columns, wanted.task)
    task = starting.choose_task(wanted.task, source, origin.config)
    held = None if asked.eval is None else reading.read(asked.eval, columns, task)
    chosen = wanted.decided(task, from_config=from_config)
    check_reports(asked.report_to)
    data = reading.prepare(source, held, task, chosen.seed)
    begun, classes = starting.start(origin, task, data.classes, chosen, asked.processor)
    layered = layered_model(begun.module, begun.processor, part)
    deepest = layered.stack.depth
    check_depths(depths, deepest)
    exit_weights(chosen.layers or range(1, deepest + 1), deepest, chosen.weights)
    about = {
        "layerscope": version("layerscope"),
        "data": {"train": reading.describe(data.train), "eval": reading.describe(data.eval)},
        "model": {"name": origin.name, "from_config": from_config, "classes": classes},
        "settings": asdict(chosen),
    }
    place = open_place(asked.out, about, main=is_main())
    with nothing_left(place, main=is_main()):
        for note in (*data.notes, *begun.notes, *layered.notes):
            teller.say(note)
        job = _job(origin.name, begun, data, classes, chosen, part, asked.report_to, asked.keep_checkpoints, teller)
        others = _baselines(job, layered, place, depths, from_config=from_config)
        _fit(job, place, teller)
    for other, there in others.values():
        teller.say(f"a separate model of {other.name}")
        _fit(other, there, teller)
    if not is_main():
        return Trained(place.path, place.history, (), "")
    done = compare(place, {depth: there for depth, (_, there) in others.items()}, part, teller)
    write_card(done, place, begun.module)
    for depth, (other, there) in others.items():
        lines = tuple(line for line in done.lines if line.depth == depth)
        write_card(replace(done, path=there.path, history=there.history, lines=lines), there, other.module)
    _report(place, teller)
    return done


def _fit(job: Job, place: Place, teller: Teller) -> None:
    if place.finished:
        teller.say(f"{place.path} is finished: nothing is left to train")
        return
    fit(job, place, teller)
    if is_main():
        place.finish()


def _baselines(
    job: Job, layered: LayeredModel, place: Place, depths: Sequence[int], *, from_config: bool
) -> dict[int, tuple[Job, Place]]:
    """Return the separate models of other depths, each a job with a folder of its own."""
    found = {}
    recipe = standard(job.settings)
    for depth, module in shallower(layered, depths, job.settings.seed, from_config=from_config).items():
        about = {
            **place.about,
            "model": {**place.about["model"], "name": f"{job.name}, {count(depth, 'layer')}"},
            "settings": asdict(recipe),
        }
        there = open_place(place.path / BASELINES / f"depth-{depth}", about, main=is_main())
        found[depth] = replace(job, name=count(depth, "layer"), module=module, settings=recipe), there
    return found


def _report(place: Place, teller: Teller) -> None:
    from layerscope.reports.page import report

    try:
        report(place.history, place.path / REPORT)
    except LayerscopeError as error:  # plotly is an extra, and the training is whole without a page
        teller.say(f"no page: {error}")


def _job(
    name: str,
    begun: starting.Start,
    data: reading.Data,
    classes: Sequence[str] | None,
    chosen: Settings,
    part: str | None,
    report_to: str,
    keep: bool,
    teller: Teller,
) -> Job:
    modality = reading.READS.get(chosen.task, "text")
    encoder = encoder_for(modality, begun.processor, begun.module, max_length=chosen.max_length, prompt="")
    encoded = reading.encode(data, classes, encoder, chosen)
    for note in encoded.notes:
        teller.say(note)
    return Job(
        name, begun.module, begun.processor, encoded.train, encoded.eval, encoded.collator, chosen, part, report_to,
        keep, kept(data.train) if classes is not None and isinstance(data.train, Corpus) else None,
    )  # fmt: skip

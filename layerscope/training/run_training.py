"""The work of `train`: a model and data in, one checkpoint that is useful at every depth out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from importlib.metadata import version
from typing import Any

from layerscope.core.errors import LayerscopeError
from layerscope.core.options import Asked
from layerscope.core.progress import Reporter, reporting
from layerscope.core.words import count
from layerscope.inputs.corpus import kept_digests
from layerscope.models import LayeredModel
from layerscope.models.encode import encoder_for
from layerscope.runs import open_run
from layerscope.training.card import write_card
from layerscope.training.data import READS, TAGGING, Data, choose_task, describe, encode, prepare, read
from layerscope.training.depths import Trained, check_depths, compare, shallower
from layerscope.training.fit import Job, check_reports, fit, is_main
from layerscope.training.folder import BASELINES, REPORT, TrainingFolder, nothing_left, open_training
from layerscope.training.loss import exit_weights
from layerscope.training.settings import Settings, described, settings_of
from layerscope.training.start import Start, find, sees_both_sides, start
from layerscope.training.trainer import layered_model


def run_training(asked: Asked, settings: dict[str, Any]) -> Trained:
    """Train as asked; return what every depth scores and costs, in the process that writes."""
    preset, as_printed, from_config = asked.preset, asked.as_printed, asked.from_config
    wanted = settings_of(settings, preset, as_printed=as_printed)
    reporter = reporting(asked.progress and is_main())
    if preset is not None:
        reporter.say(described(preset, settings, as_printed=as_printed))
    columns = asked.text_column, asked.label_column
    origin = find(asked.model, from_config=from_config)
    source = read(asked.train, wanted.task, *columns)
    task = choose_task(source, sees_both_sides(origin.config)) if wanted.task == "auto" else wanted.task
    held = None if asked.eval is None else read(asked.eval, task, *columns)
    chosen = wanted.decided(task, from_config=from_config)
    check_reports(asked.report_to)
    data = prepare(source, held, task, chosen.seed)
    begun = start(origin, task, data.classes, chosen, asked.processor)
    layered = layered_model(begun.module, begun.processor, asked.part)
    depth, depths = layered.stack.depth, asked.baseline_depths or ()
    check_depths(depths, depth)
    exit_weights(chosen.layers or range(1, depth + 1), depth, chosen.weights)
    about = {
        "layerscope": version("layerscope"),
        "data": {"train": describe(data.train), "eval": describe(data.eval)},
        "model": {"name": origin.name, "from_config": from_config, "classes": begun.classes},
        "settings": asdict(chosen),
    }
    folder = open_training(asked.out, about, main=is_main())
    with nothing_left(folder, main=is_main()):
        for note in (*data.notes, *begun.notes, *layered.notes):
            reporter.say(note)
        job = _job(origin.name, begun, data, chosen, asked, reporter)
        others = _baselines(job, layered, folder, depths, from_config=from_config)
        fit(job, folder, reporter)
    for other, beside in others.values():
        reporter.say(f"a separate model of {other.name}")
        fit(other, beside, reporter)
    if not is_main():
        return Trained(folder.path, folder.history, (), "")
    done = compare(folder, {depth: beside for depth, (_, beside) in others.items()}, asked.part, reporter)
    write_card(done, folder, begun.module)
    for depth, (other, beside) in others.items():
        lines = tuple(line for line in done.lines if line.depth == depth)
        write_card(replace(done, path=beside.path, history=beside.history, lines=lines), beside, other.module)
    try:
        open_run(folder.history).report(folder.path / REPORT)
    except LayerscopeError as error:  # plotly is an extra, and the training is whole without a page
        reporter.say(f"no page: {error}")
    return done


def _job(name: str, begun: Start, data: Data, chosen: Settings, asked: Asked, reporter: Reporter) -> Job:
    modality = READS.get(chosen.task, "text")
    encoder = encoder_for(modality, begun.processor, begun.module, max_length=chosen.max_length, prompt="")
    encoded = encode(data, begun.classes, encoder, chosen)
    for note in encoded.notes:
        reporter.say(note)
    seen = None if begun.classes is None or chosen.task == TAGGING else kept_digests(data.train)
    return Job(
        name, begun.module, begun.processor, encoded, chosen, asked.part, asked.report_to, asked.keep_checkpoints, seen
    )


def _baselines(
    job: Job, layered: LayeredModel, folder: TrainingFolder, depths: Sequence[int], *, from_config: bool
) -> dict[int, tuple[Job, TrainingFolder]]:
    """Return the separate models of other depths: the same recipe with the last layer's loss alone, in own folders."""
    found = {}
    recipe = replace(job.settings, objective="standard", layers=None, distillation=0.0)
    for depth, module in shallower(layered, depths, job.settings.seed, from_config=from_config).items():
        name = count(depth, "layer")
        model = {**folder.about["model"], "name": f"{job.name}, {name}"}
        about = {**folder.about, "model": model, "settings": asdict(recipe)}
        beside = open_training(folder.path / BASELINES / f"depth-{depth}", about, main=is_main())
        found[depth] = replace(job, name=name, module=module, settings=recipe), beside
    return found

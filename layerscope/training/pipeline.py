"""The work of `train`: a model and data in, one checkpoint that is useful at every depth out."""

import copy
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, replace
from importlib.metadata import version
from typing import Any

from layerscope.core.errors import LayerscopeError, count
from layerscope.core.folder_lock import locked
from layerscope.core.options import Asked
from layerscope.core.progress import reporting
from layerscope.inputs.corpus import kept_digests
from layerscope.models import LayeredModel
from layerscope.models.encode import encoder_for
from layerscope.models.mean_head import is_mean_head
from layerscope.runs import open_run
from layerscope.show.plain import escape
from layerscope.training.data import READS, TAGGING, choose_task, describe, encode, prepare, read
from layerscope.training.depths import SCORES, Trained, compare, shallower
from layerscope.training.fit import Job, check_reports, fit, is_main
from layerscope.training.folder import (
    BASELINES,
    REPORT,
    TrainingFolder,
    nothing_left,
    open_training,
)
from layerscope.training.loss import exit_weights
from layerscope.training.starting_model import PlainClassifier, find, sees_both_sides, start
from layerscope.training.trainer import layered_model
from layerscope.training.verb import SENTENCES, TASKS, described, settings_of
from layerscope.truncation.card import Result, head, pipeline_of, write_card
from layerscope.truncation.checkpoint import auto_class
from layerscope.truncation.source import Whence, copy_terms, whereabouts


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
    task = (
        choose_task(source, sees_both_sides(origin.config))
        if wanted.task == "auto"
        else wanted.task
    )
    held = None if asked.eval is None else read(asked.eval, task, *columns)
    chosen = wanted.decided(task, asked)
    check_reports(asked.report_to)
    learnt, held, labels, notes = prepare(source, held, task, chosen.seed)
    module, processor, classes, changes = start(origin, task, labels, chosen, asked.processor)
    layered = layered_model(module, processor, asked.part)
    depth, depths = layered.stack.depth, asked.baseline_depths or ()
    if wrong := [shallow for shallow in depths if shallow >= depth]:
        mend = f"give some of 1..{depth - 1}" if depth > 1 else "leave them out"
        raise LayerscopeError(
            f"baseline_depths {wrong[0]}: this model has {count(depth, 'layer')}, {mend}"
        )
    exit_weights(chosen.layers or range(1, depth + 1), depth, chosen.weights, chosen.beta)
    about = {
        "layerscope": version("layerscope"),
        "data": {"train": describe(learnt), "eval": describe(held)},
        "model": {"name": origin.name, "from_config": from_config, "classes": classes},
        "settings": asdict(chosen),
    }
    folder = open_training(asked.out, about, main=is_main())
    with locked(folder.path) if is_main() else nullcontext():
        with nothing_left(folder, main=is_main()):
            for note in (*notes, *changes, *layered.notes):
                reporter.say(note)
            reads = "tensor" if learnt.modality == "tensor" else READS.get(task, "text")
            encoder = encoder_for(
                reads, processor, layered.module, max_length=chosen.max_length, prompt=""
            )
            train, judged, collator, notes = encode(learnt, held, classes, encoder, chosen)
            for note in notes:
                reporter.say(note)
            seen = None if classes is None or task == TAGGING else kept_digests(learnt)
            job = Job(origin.name, module, processor, train, judged, collator, chosen, asked, seen)
            others = _baselines(job, layered, folder, depths, from_config=from_config)
            fit(job, folder, reporter)
        for other, beside in others.values():
            reporter.say(f"a separate model of {other.name}")
            fit(other, beside, reporter)
        if not is_main():
            return Trained(folder.path, folder.history, (), "")
        done = compare(
            folder, {depth: beside for depth, (_, beside) in others.items()}, asked.part, reporter
        )
        given = origin.source if origin.module is not None else str(asked.model)
        whence = (None, None) if from_config else whereabouts(given, None)
        data = [asked.train[3:].partition(":")[0]] if str(asked.train).startswith("hf:") else []
        _describe(done, folder, module, whence, data)
        for depth, (other, beside) in others.items():
            lines = tuple(line for line in done.lines if line.depth == depth)
            _describe(
                replace(done, path=beside.path, history=beside.history, lines=lines),
                beside,
                other.module,
                whence,
                data,
            )
        try:
            open_run(folder.history).report(folder.path / REPORT)
        except (
            LayerscopeError
        ) as error:  # vl-convert is an extra, and the training is whole without a page
            reporter.say(f"no page: {error}")
        return done


def _baselines(
    job: Job,
    layered: LayeredModel,
    folder: TrainingFolder,
    depths: Sequence[int],
    *,
    from_config: bool,
) -> dict[int, tuple[Job, TrainingFolder]]:
    """Return the separate models of other depths: the same recipe with the last layer's loss alone, in own folders."""
    found = {}
    recipe = replace(
        job.settings, objective="standard", layers=None, distillation=0.0, layer_dropout=0.0
    )
    for depth, module in shallower(
        layered, depths, job.settings.seed, from_config=from_config
    ).items():
        name = count(depth, "layer")
        if job.settings.task == SENTENCES:  # the same encoder around the shorter transformer
            module = copy.deepcopy(job.module, {id(layered.module): module})
        model = {**folder.about["model"], "name": f"{job.name}, {name}"}
        about = {**folder.about, "model": model, "settings": asdict(recipe)}
        beside = open_training(folder.path / BASELINES / f"depth-{depth}", about, main=is_main())
        found[depth] = replace(job, name=name, module=module, settings=recipe), beside
    return found


def _describe(
    done: Trained, folder: TrainingFolder, module: Any, whence: Whence, data: Sequence[str]
) -> None:
    """Write the card of a trained model."""
    about, settings, first, last = folder.about, folder.about["settings"], done.own[0], done.own[-1]
    task, held, modality = (
        settings["task"],
        about["data"]["eval"]["name"],
        READS.get(settings["task"], "text"),
    )
    plain, sentences, pixels = isinstance(module, PlainClassifier), task == SENTENCES, ""
    library = "sentence-transformers" if sentences else "pytorch" if plain else "transformers"
    if modality == "image" and not any(folder.path.glob("p*processor_config.json")):
        size, channels = (
            getattr(module.config, "image_size", 224),
            getattr(module.config, "num_channels", 3),
        )
        pixels = f"{count(channels, 'channel')}, resized to {size}"
    work = task if sentences else pipeline_of(TASKS[task])
    score = last.metric.removeprefix("layer_")
    result = Result(done.path.name, score, last.value, held)
    tags = [settings["objective"]]
    top = head(whence, library, work, tags, result, datasets=data, same=False)
    copy_terms(whence[1], folder.path)
    write_card(
        "trained",
        folder.path,
        head=top,
        done=done,
        first=first,
        name=escape(about["model"]["name"]),
        task=task,
        settings=settings,
        learnt=about["data"]["train"]["name"],
        held=held,
        scores=SCORES[first.metric][0],
        from_config=about["model"]["from_config"],
        dims=[*done.dims.columns[::-1]],
        format=library,
        modality=modality,
        mean=library == "transformers" and is_mean_head(module.config),
        pixels=pixels,
        auto=auto_class(module) if library == "transformers" else "",
    )

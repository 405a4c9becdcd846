"""The work of `train`: a model and data in, one checkpoint that is useful at every depth out."""

import copy
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, replace
from importlib.metadata import version
from typing import Any

from layerscope.core.errors import LayerscopeError, count
from layerscope.core.folder_lock import locked
from layerscope.core.progress import Reporter, reporting
from layerscope.inputs import Corpus
from layerscope.inputs.corpus import kept_digests
from layerscope.models import LayeredModel
from layerscope.models.encode import encoder_for
from layerscope.models.mean_head import is_mean_head
from layerscope.runs import open_run
from layerscope.show.plain import escape
from layerscope.training.data import choose_task, describe, encode, prepare, read
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
from layerscope.training.options import (
    MODALITIES,
    SENTENCES,
    TAGGING,
    TASKS,
    TrainOptions,
    describe_preset,
    settings_for,
)
from layerscope.training.starting_model import (
    Origin,
    PlainClassifier,
    find,
    sees_both_sides,
    start,
)
from layerscope.training.trainer import layered_model
from layerscope.truncation.card import Result, head, pipeline_of, write_card
from layerscope.truncation.checkpoint import auto_class
from layerscope.truncation.source import Whence, copy_terms, whereabouts

Baselines = Mapping[int, tuple[Job, TrainingFolder]]
"""The separate models to compare with, by their depth, and the folder of each."""


def run_training(options: TrainOptions) -> Trained:
    """Train as the options say; return what every depth scores and costs, in the process that writes."""
    reporter = reporting(options.progress and is_main())
    if options.preset is not None:
        reporter.say(describe_preset(options.preset, options.settings))
    origin = find(options.model, from_config=options.from_config)
    task, train, held = _read(options, origin)
    settings = settings_for(task, options)
    check_reports(options.report_to)
    train, held, labels, data_notes = prepare(train, held, task, settings.seed)
    begin = start(origin, task, labels, settings, options.processor)
    layered = layered_model(begin.module, begin.processor, options.part)
    depth, depths = layered.stack.depth, options.baseline_depths or ()
    _check_depths(depths, depth)
    exit_weights(settings.layers or range(1, depth + 1), depth, settings.weights, settings.beta)
    about = {
        "layerscope": version("layerscope"),
        "data": {"train": describe(train), "eval": describe(held)},
        "model": {
            "name": origin.name,
            "from_config": options.from_config,
            "classes": begin.classes,
        },
        "settings": asdict(settings),
    }
    folder = open_training(options.out, about, main=is_main())
    with locked(folder.path) if is_main() else nullcontext():
        with nothing_left(folder, main=is_main()):
            modality = "tensor" if train.modality == "tensor" else MODALITIES.get(task, "text")
            encoder = encoder_for(
                modality, begin.processor, layered.module, max_length=settings.max_length, prompt=""
            )
            learnt, judged, collator, notes = encode(train, held, begin.classes, encoder, settings)
            for note in (*data_notes, *begin.notes, *layered.notes, *notes):
                reporter.say(note)
            classifies = begin.classes is not None and task != TAGGING
            job = Job(
                origin.name,
                begin.module,
                begin.processor,
                learnt,
                judged,
                collator,
                settings,
                options.from_config,
                options.part,
                options.report_to,
                kept_digests(train) if classifies else None,
            )
            baselines = _baselines(job, layered, folder, depths)
            fit(job, folder, reporter, keep_checkpoints=options.keep_checkpoints)
        for other, beside in baselines.values():
            reporter.say(f"a separate model of {other.name}")
            fit(other, beside, reporter, keep_checkpoints=options.keep_checkpoints)
        if not is_main():
            return Trained(folder.path, folder.history, (), "")
        return _report(job, folder, baselines, _whence(origin), options.train, reporter)


def _read(options: TrainOptions, origin: Origin) -> tuple[str, Corpus, Corpus | None]:
    """Return the task, by default the one that the data suggest, with the data to train and to evaluate on."""
    columns = options.text_column, options.label_column
    task = options.settings.task
    train = read(options.train, task, *columns)
    if task == "auto":
        task = choose_task(train, sees_both_sides(origin.config))
    held = None if options.eval is None else read(options.eval, task, *columns)
    return task, train, held


def _check_depths(baselines: Sequence[int], depth: int) -> None:
    for shallow in baselines:
        if shallow >= depth:
            mend = f"give some of 1..{depth - 1}" if depth > 1 else "leave them out"
            raise LayerscopeError(
                f"baseline_depths {shallow}: this model has {count(depth, 'layer')}, {mend}"
            )


def _baselines(
    job: Job, layered: LayeredModel, folder: TrainingFolder, depths: Sequence[int]
) -> Baselines:
    """Return the separate models of other depths: the same recipe with the last layer's loss alone, in own folders."""
    recipe = replace(
        job.settings,
        objective="standard",
        schedule="always",
        rotation=None,
        layers=None,
        distillation=0.0,
        layer_dropout=0.0,
    )
    jobs = {}
    separate = shallower(layered, depths, recipe.seed, from_config=job.from_config)
    for depth, module in separate.items():
        name = count(depth, "layer")
        if recipe.task == SENTENCES:  # the same encoder around the shorter transformer
            module = copy.deepcopy(job.module, {id(layered.module): module})
        model = {**folder.about["model"], "name": f"{job.name}, {name}"}
        about = {**folder.about, "model": model, "settings": asdict(recipe)}
        beside = open_training(folder.path / BASELINES / f"depth-{depth}", about, main=is_main())
        jobs[depth] = replace(job, name=name, module=module, settings=recipe), beside
    return jobs


def _whence(origin: Origin) -> Whence:
    """Return where the weights that were trained came from, for the card."""
    if origin.from_config:
        return None, None
    return whereabouts(origin.source if origin.module is not None else str(origin.given), None)


def _report(
    job: Job,
    folder: TrainingFolder,
    baselines: Baselines,
    whence: Whence,
    data: Any,
    reporter: Reporter,
) -> Trained:
    """Write what every depth scores and costs, the cards and the page; return the same."""
    others = {depth: beside for depth, (_, beside) in baselines.items()}
    trained = compare(folder, others, job.part, reporter)
    on_hub = str(data).startswith("hf:")
    datasets = [str(data)[3:].partition(":")[0]] if on_hub else []
    _describe(trained, folder, job.module, whence, datasets)
    for depth, (other, beside) in baselines.items():
        lines = tuple(line for line in trained.lines if line.depth == depth)
        rival = replace(trained, path=beside.path, history=beside.history, lines=lines)
        _describe(rival, beside, other.module, whence, datasets)
    try:
        open_run(folder.history).report(folder.path / REPORT)
    except (
        LayerscopeError
    ) as error:  # vl-convert is an extra, and the training is whole without a page
        reporter.say(f"no page: {error}")
    return trained


def _describe(
    done: Trained, folder: TrainingFolder, module: Any, whence: Whence, data: Sequence[str]
) -> None:
    """Write the card of a trained model."""
    about, settings, first, last = (
        folder.about,
        folder.about["settings"],
        done.layers[0],
        done.layers[-1],
    )
    task, held = settings["task"], about["data"]["eval"]["name"]
    modality = MODALITIES.get(task, "text")
    library, pixels = "transformers", ""
    if task == SENTENCES:
        library = "sentence-transformers"
    elif isinstance(module, PlainClassifier):
        library = "pytorch"
    if modality == "image" and not any(folder.path.glob("p*processor_config.json")):
        size = getattr(module.config, "image_size", 224)
        channels = getattr(module.config, "num_channels", 3)
        pixels = f"{count(channels, 'channel')}, resized to {size}"
    work = task if task == SENTENCES else pipeline_of(TASKS[task])
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

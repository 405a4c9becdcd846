"""The work of `train`: a model and data in, one checkpoint that is useful at every depth out."""

from dataclasses import asdict
from importlib.metadata import version
from typing import Any

from layerscope.core import LayerscopeError, reporting
from layerscope.inputs import Corpus
from layerscope.models import encoder_for, is_mean_head
from layerscope.models.whereabouts import Whence
from layerscope.runs import open_run
from layerscope.training.data import choose_task, describe, encode, prepare, read
from layerscope.training.depths import Trained, compare_depths
from layerscope.training.fit import check_reports, fit, is_main
from layerscope.training.folder import REPORT, TrainingFolder, open_training
from layerscope.training.loss import exit_weights
from layerscope.training.options import (
    MODALITIES,
    SENTENCES,
    TASKS,
    TrainOptions,
    settings_for,
)
from layerscope.training.origin import find
from layerscope.training.starting_model import PlainClassifier, start
from layerscope.training.trainer import layered_model
from layerscope.truncation.card import head, pipeline_of, write_card
from layerscope.truncation.checkpoint import auto_class
from layerscope.truncation.source import copy_terms


def run_training(options: TrainOptions) -> Trained:
    """Train as the options say; return what every depth scores and costs, in the process that writes."""
    main = is_main()
    reporter = reporting(options.progress and main)
    check_reports(options.settings.report_to)
    origin = find(options.model, from_config=options.from_config)
    task, train, held = _read(options)
    settings = settings_for(task, options)
    train, held, classes = prepare(train, held, task, settings.seed)
    begin = start(origin, classes, settings, options.processor)
    layered = layered_model(begin.module, begin.processor, settings.part)
    depth = layered.depth
    exit_weights(settings.layers or range(1, depth + 1), depth, settings.weights)
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
    with open_training(options.out, about, main=main) as folder:
        encoder = encoder_for(
            train.modality,
            begin.processor,
            layered.module,
            max_length=settings.max_length,
            prompt="",
        )
        lessons = encode(train, held, begin.classes, encoder, settings)
        for note in (*train.notes, *begin.notes, *layered.notes, *lessons.notes):
            reporter.say(note)
        fit(begin, lessons, settings, folder, reporter)
        if not main:
            return Trained(folder.path, folder.history, (), "")
        trained = compare_depths(folder, reporter)
        _describe(trained, folder, begin.module, origin.whence)
        try:
            open_run(folder.history).report(folder.path / REPORT)
        # vl-convert is an extra, and the training is whole
        except LayerscopeError as error:
            reporter.say(f"no page: {error}")
        return trained


def _read(options: TrainOptions) -> tuple[str, Corpus, Corpus | None]:
    """Return the task, by default the one that the data suggest, with the data to train and to evaluate on."""
    columns = options.text_column, options.label_column
    task = options.settings.task
    train = read(options.train, task, *columns)
    if task == "auto":
        task = choose_task(train)
    if options.eval is None:
        return task, train, None
    return task, train, read(options.eval, task, *columns)


def _describe(
    trained: Trained, folder: TrainingFolder, module: Any, whence: Whence
) -> None:
    """Write the card of a trained model."""
    settings = folder.about["settings"]
    task = settings["task"]
    library = "transformers"
    work = pipeline_of(TASKS[task])
    auto = ""
    if task == SENTENCES:
        library = "sentence-transformers"
        work = SENTENCES
    elif isinstance(module, PlainClassifier):
        library = "pytorch"
    else:
        auto = auto_class(module)
    top = head(whence, library, work, [settings["objective"]], same=False)
    copy_terms(whence[1], folder.path)
    write_card(
        "trained",
        folder.path,
        head=top,
        done=trained,
        about=folder.about,
        format=library,
        modality=MODALITIES.get(task, "text"),
        mean=is_mean_head(getattr(module, "config", None)),
        processor=any(folder.path.glob("*processor_config.json")),
        auto=auto,
    )

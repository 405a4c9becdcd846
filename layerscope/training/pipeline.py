"""The work of `train`: a model and data in, one checkpoint that is useful at every depth out."""

from contextlib import nullcontext
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

from layerscope.core.errors import LayerscopeError
from layerscope.core.folder_lock import locked
from layerscope.core.progress import reporting
from layerscope.inputs import Corpus
from layerscope.models.encode import encoder_for
from layerscope.models.mean_head import is_mean_head
from layerscope.runs import open_run
from layerscope.show.plain import escape
from layerscope.training.data import choose_task, describe, encode, prepare, read
from layerscope.training.depths import Trained, compare_depths
from layerscope.training.fit import check_reports, fit, is_main
from layerscope.training.folder import (
    REPORT,
    TrainingFolder,
    nothing_left,
    open_training,
)
from layerscope.training.loss import exit_weights
from layerscope.training.options import (
    MODALITIES,
    SENTENCES,
    TASKS,
    TrainOptions,
    settings_for,
)
from layerscope.training.starting_model import (
    Origin,
    PlainClassifier,
    find,
    start,
)
from layerscope.training.trainer import layered_model
from layerscope.truncation.card import head, pipeline_of, write_card
from layerscope.truncation.checkpoint import auto_class
from layerscope.truncation.source import Whence, copy_terms, whereabouts


def run_training(options: TrainOptions) -> Trained:
    """Train as the options say; return what every depth scores and costs, in the process that writes."""
    reporter = reporting(options.progress and is_main())
    check_reports(options.settings.report_to)
    origin = find(options.model, from_config=options.from_config)
    task, train, held = _read(options, origin)
    settings = settings_for(task, options)
    train, held, labels, data_notes = prepare(train, held, task, settings.seed)
    begin = start(origin, task, labels, settings, options.processor)
    layered = layered_model(begin.module, begin.processor, settings.part)
    depth = layered.stack.depth
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
    folder = open_training(options.out, about, main=is_main())
    with locked(folder.path) if is_main() else nullcontext():
        with nothing_left(folder, main=is_main()):
            modality = (
                "tensor" if train.modality == "tensor" else MODALITIES.get(task, "text")
            )
            encoder = encoder_for(
                modality,
                begin.processor,
                layered.module,
                max_length=settings.max_length,
                prompt="",
            )
            lessons = encode(train, held, begin.classes, encoder, settings)
            for note in (*data_notes, *begin.notes, *layered.notes, *lessons.notes):
                reporter.say(note)
            fit(begin, lessons, settings, folder, reporter)
        if not is_main():
            return Trained(folder.path, folder.history, (), "")
        trained = compare_depths(folder, reporter)
        _describe(trained, folder, begin.module, _whence(origin))
        try:
            open_run(folder.history).report(folder.path / REPORT)
        # vl-convert is an extra, and the training is whole
        except LayerscopeError as error:
            reporter.say(f"no page: {error}")
        return trained


def _read(options: TrainOptions, origin: Origin) -> tuple[str, Corpus, Corpus | None]:
    """Return the task, by default the one that the data suggest, with the data to train and to evaluate on."""
    columns = options.text_column, options.label_column
    task = options.settings.task
    train = read(options.train, task, *columns)
    if task == "auto":
        task = choose_task(train)
    held = None if options.eval is None else read(options.eval, task, *columns)
    return task, train, held


def _whence(origin: Origin) -> Whence:
    """Return where the weights that were trained came from, for the card."""
    if origin.from_config:
        return None, None
    return whereabouts(
        origin.source if origin.module is not None else str(origin.given), None
    )


def _describe(
    trained: Trained, folder: TrainingFolder, module: Any, whence: Whence
) -> None:
    """Write the card of a trained model."""
    about, settings, last = folder.about, folder.about["settings"], trained.lines[-1]
    task, held = settings["task"], about["data"]["eval"]["name"]
    library, work = "transformers", pipeline_of(TASKS[task])
    if task == SENTENCES:
        library, work = "sentence-transformers", SENTENCES
    elif isinstance(module, PlainClassifier):
        library = "pytorch"
    top = head(whence, library, work, [settings["objective"]], same=False)
    copy_terms(whence[1], folder.path)
    write_card(
        "trained",
        folder.path,
        head=top,
        done=trained,
        last=last,
        name=escape(about["model"]["name"]),
        task=task,
        settings=settings,
        learnt=about["data"]["train"]["name"],
        held=held,
        from_config=about["model"]["from_config"],
        dims=[*trained.dims.columns[::-1]],
        format=library,
        modality=MODALITIES.get(task, "text"),
        mean=library == "transformers" and is_mean_head(module.config),
        processor=any(folder.path.glob("*processor_config.json")),
        auto=auto_class(module) if library == "transformers" else "",
    )

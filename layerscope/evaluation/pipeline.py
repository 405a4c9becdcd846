"""The work of `evaluate`: every layer of a model on tasks, each sample embedded once."""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from layerscope.core import LayerscopeError, own_folder, processes, reporting
from layerscope.core.folder_lock import locked
from layerscope.core.labels import is_target
from layerscope.evaluation.encoders import encoders_of, last_of, reader_of, slots_of
from layerscope.evaluation.judges import STATES, Judge
from layerscope.evaluation.judging import quiet
from layerscope.evaluation.options import EvaluateOptions, Positions
from layerscope.evaluation.probe_tasks import ProbeTask
from layerscope.evaluation.probing import Study, states_of
from layerscope.evaluation.stored_texts import TextStates
from layerscope.evaluation.tasks import open_tasks
from layerscope.models import LayeredModel, Loaded, Override, load, modalities_of
from layerscope.models.of_run import as_in_run, check_unchanged
from layerscope.runs.opening import run_of
from layerscope.scores import Evaluation, open_evaluation
from layerscope.scores.evaluation import ORIGINS, ModelOrigin, add_origin
from layerscope.scores.opening import META, holds_scores
from layerscope.scores.probe_results import Slot, has_probes, refuse_other_data


def evaluate_layers(options: EvaluateOptions) -> Evaluation:
    """Score every layer and the model as shipped on the tasks, and return what lies in the folder then."""
    team = processes.team()
    positions = options.positions
    reporter = reporting(options.progress and team.leads)
    out = _folder(options.out, team.size)
    if positions.mixes and options.shift is not None:
        raise LayerscopeError(
            "`mixes` are not judged under a `shift`: leave one of them out"
        )
    tasks, probes = open_tasks(
        options.tasks, options.samples, options.seed, options.shift
    )
    _refuse(options, probes)
    model_or_path = options.model_or_run
    override = options.override
    load_options = options.load
    run = run_of(model_or_path)
    if run is not None:
        model_or_path = run.model_source()
        override, load_options = as_in_run(run.info, override, load_options)
        if positions.pooling == "auto":
            pooling = run.info["options"].get("pooling", "auto")
            positions = replace(positions, pooling=pooling)
    loaded = load(model_or_path, load_options, options.processor)
    with ExitStack() as stack:
        folder = out or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        make_study = partial(
            Study, folder=folder, seed=options.seed, mixes=positions.mixes, run=run
        )
        studies = list(_studies(probes, loaded, override, positions, make_study))
        slots: list[Slot] = []
        if tasks:
            model = reader_of(loaded, override)
            slots = slots_of(model, positions)
        else:
            model = studies[0].model
        if run is not None:
            check_unchanged(str(run.path), run.info, model)
        _refuse_other_data(folder, tasks, studies)
        team.meet()  # all have looked at the folder before one writes to it
        stack.enter_context(locked(folder) if team.leads else nullcontext())
        stack.enter_context(quiet())
        origin = ModelOrigin(
            _source(model_or_path),
            model.depth,
            model.encoder.modality,
            _part(model, loaded),
        )
        team.lead(partial(add_origin, folder, loaded.name, origin))
        failed = dict[str, str]()
        lengths = list[int]()
        for study in studies:
            failed |= study.judge(reporter)
            lengths += study.model.encoder.lengths(study.states.corpus.samples)
        if tasks:
            wanted = [*slots, last_of(model)]
            states = TextStates(model, wanted, folder / STATES, reporter, team)
            encoders = encoders_of(model, states, slots, positions.mixes)
            judge = Judge(folder, states, encoders, reporter, team)
            judge.all(tasks)
            failed |= judge.failed
            lengths += states.lengths
        if lengths and model.encoder.modality == "text":
            mean = sum(lengths) / len(lengths)
            origin = replace(origin, tokens=max(1, round(mean)))
            team.lead(partial(add_origin, folder, loaded.name, origin))
        team.meet()  # all is written
        return _opened(folder, None if out is not None else loaded.name, failed)


def _refuse(options: EvaluateOptions, probes: Sequence[ProbeTask]) -> None:
    """Raise for options that a task cannot follow."""
    mixes = options.positions.mixes
    chat = options.load.chat
    for probe in probes:
        if mixes and is_target(probe.data.labels):
            raise LayerscopeError(
                f"the labels of {probe.data.name} are numbers to predict, and `mixes` take classes: leave them out"
            )
        if chat and probe.kind.name not in ("linear-probe", "knn-probe"):
            raise LayerscopeError(
                f"`chat` wraps whole texts, and {probe.name} reads others: leave it out"
            )


def _studies(
    probes: Sequence[ProbeTask],
    loaded: Loaded,
    override: Override,
    positions: Positions,
    make_study: Callable[..., Study],
) -> Iterator[Study]:
    """Yield the probes by the data that they share: a linear and a kNN probe read the same states."""
    groups: dict[Any, list[ProbeTask]] = {}
    for probe in probes:
        shared = probe.kind.states, id(probe.data)
        groups.setdefault(shared, []).append(probe)
    for group in groups.values():
        states = states_of(group[0], loaded, override, positions)
        shift = None
        for probe in group:
            if probe.shift is not None:
                target = replace(probe, data=probe.shift, shift=None)
                target_states = states_of(target, loaded, override, positions)
                shift = make_study([target], target_states)
        yield make_study(group, states, shift=shift)


def _refuse_other_data(
    folder: Path, tasks: Sequence[Any], studies: Sequence[Study]
) -> None:
    """Raise where a folder has scores of one of these tasks on other data."""
    for task in tasks:
        refuse_other_data(folder, task.metadata.name, task.metadata.revision)
    for study in studies:
        for probe in study.tasks:
            refuse_other_data(folder, probe.name, study.data_of(probe))


def _part(model: LayeredModel, loaded: Loaded) -> str | None:
    """Return the stack of blocks that is judged, where the model has several."""
    has_several = len(model.parts) > 1 or len(modalities_of(loaded.module)) > 1
    if has_several:
        return model.stack.part
    return None


def _opened(folder: Path, name: str | None, failed: dict[str, str]) -> Evaluation:
    """Return what lies in a folder, which is called by `name` where it is not kept."""
    if not any(folder.glob(f"results/**/{META}")) and not has_probes(folder):
        task, reason = next(iter(failed.items()))
        raise LayerscopeError(f"no task could be judged; {task}: {reason}")
    evaluation = open_evaluation(folder)
    evaluation.source = name or evaluation.source
    evaluation.failed = failed
    return evaluation


def _folder(out: Path | None, processes: int) -> Path | None:
    """Return the folder that is written to; raises `LayerscopeError` for one that holds other things."""
    if out is None and processes > 1:
        raise LayerscopeError("several processes need a shared folder: give `out`")
    if out is not None and not (out.is_dir() and holds_scores(out)):
        own_folder(out, "evaluation", ORIGINS)
    return out


def _source(model: Any) -> str | None:
    """Return what loads the model again, None for one in memory."""
    if not isinstance(model, (str, Path)):
        return None
    local = Path(model).expanduser()
    if local.exists():
        return str(local.resolve())
    return str(model)

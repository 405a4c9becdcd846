"""The work of `evaluate`: every layer of a model on tasks, each sample embedded once."""

import tempfile
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from layerscope.core import processes
from layerscope.core.errors import LayerscopeError
from layerscope.core.files import own_folder
from layerscope.core.folder_lock import locked
from layerscope.core.options import Asked
from layerscope.core.processes import Team
from layerscope.core.progress import reporting
from layerscope.evaluation.encoders import Readers, encoders_of, readers_of, slots_of, stores_of
from layerscope.evaluation.judges import STATES, Judge
from layerscope.evaluation.judging import Workers, quiet
from layerscope.evaluation.probe_tasks import ProbeTask
from layerscope.evaluation.probing import Study
from layerscope.evaluation.tasks import open_tasks
from layerscope.models import LoadOptions, Override, load
from layerscope.models.encode import modalities_of
from layerscope.models.of_run import check_unchanged, model_of
from layerscope.runs.opening import run_of
from layerscope.scores.evaluation import ORIGINS, Evaluation, ModelOrigin, add_origin
from layerscope.scores.opening import META, holds_scores, open_evaluation
from layerscope.scores.probe_results import has_probes, refuse_other_data


def evaluate_layers(asked: Asked) -> Evaluation:
    """Do what `evaluate` is asked for."""
    team = processes.team()
    reporter, out = reporting(asked.progress and team.leads), _folder(asked.out, team)
    tasks, probes = open_tasks(asked.tasks, asked.samples, asked.seed, asked.split, asked.shift)
    options, override, given, pooling = (
        asked.of(LoadOptions),
        asked.of(Override),
        asked.model_or_run,
        asked.pooling,
    )
    run = run_of(given)
    if run is not None:
        given, override, options = model_of(run, override, options)
        pooling = run.info["options"].get("pooling", "auto") if pooling == "auto" else pooling
    loaded = load(given, options, asked.processor)
    rows_of = partial(
        slots_of, sites=asked.sites, layers=asked.layers, pooling=pooling, mixes=asked.mixes
    )
    with ExitStack() as stack:
        folder = out or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        groups: dict[Any, list[ProbeTask]] = {}
        for probe in probes:  # linear and kNN probe of the same data share a study
            groups.setdefault((probe.kind.states, id(probe.data)), []).append(probe)
        studies = [
            Study(group, folder, loaded, override, rows_of, asked, reporter, team)
            for group in groups.values()
        ]
        readers = readers_of(loaded, override, tasks) if tasks else Readers(studies[0].model)
        model, failed = readers.model, dict[str, str]()
        if tasks:
            slots = rows_of(model, known=readers.sites)
            if run is not None:
                check_unchanged(run, model)
            workers = Workers(asked.jobs, len(slots) + 1)
            stack.push(workers.end)
        named = [(task.metadata.name, task.metadata.revision) for task in tasks]
        for name, data in [
            *named,
            *((task.name, study.data_of(task)) for study in studies for task in study.tasks),
        ]:
            refuse_other_data(folder, name, data)
        team.meet()  # all have looked at the folder before one writes to it
        stack.enter_context(locked(folder) if team.leads else nullcontext())
        stack.enter_context(quiet())
        part = (
            model.stack.part
            if len(model.parts) > 1 or len(modalities_of(loaded.module)) > 1
            else None
        )
        planned = {
            task.name: {slot[0] for slot in study.states.slots}
            for study in studies
            for task in study.tasks
        }
        planned |= {task.metadata.name: {slot[0] for slot in slots} for task in tasks}
        layers = {task: sorted(numbers) for task, numbers in planned.items()}
        known = ModelOrigin(
            _source(given), model.stack.depth, model.encoder.modality, part, planned=layers
        )
        team.lead(partial(add_origin, folder, loaded.name, known))
        done, lengths = 0, list[int]()
        for study in studies:
            failed |= study.judge(run, done, len(probes))
            done += len(study.tasks)
            lengths += study.model.encoder.lengths(study.states.corpus.samples)
        if tasks:
            stores = stores_of(readers, slots, folder / STATES, reporter, run, team)
            encoders = encoders_of(readers, stores, slots, asked.mixes)
            judge = Judge(folder, stores, encoders, workers, asked.keep_states, team)
            judge.all(tasks)
            failed |= judge.failed
            lengths += stores[0].lengths
        if lengths and model.encoder.modality == "text":
            known = replace(known, tokens=max(1, round(sum(lengths) / len(lengths))))
            team.lead(partial(add_origin, folder, loaded.name, known))
        team.meet()  # all is written
        if not any(folder.glob(f"results/**/{META}")) and not has_probes(folder):
            name, reason = next(iter(failed.items()))
            raise LayerscopeError(f"no task could be judged; {name}: {reason}")
        found = open_evaluation(folder)
        found.source = loaded.name if out is None else found.source
        found.failed = failed
        return found


def _folder(out: str | Path | None, team: Team) -> Path | None:
    """Return the folder that is written to; raises `LayerscopeError` for one that holds other things."""
    if out is None and team.size > 1:
        raise LayerscopeError("several processes need a shared folder: give `out`")
    if out is not None and not (Path(out).is_dir() and holds_scores(Path(out))):
        own_folder(out, "evaluation", ORIGINS)
    return None if out is None else Path(out)


def _source(given: Any) -> str | None:
    """Return what loads the model again, None for one in memory."""
    if not isinstance(given, (str, Path)):
        return None
    local = Path(given).expanduser()
    return str(local.resolve()) if local.exists() else str(given)

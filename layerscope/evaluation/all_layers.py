"""The work of `evaluate`: every layer of a model on tasks, each text embedded once."""

import tempfile
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from layerscope.core.errors import LayerscopeError, choices
from layerscope.core.files import own_folder
from layerscope.core.options import Asked
from layerscope.core.progress import reporting
from layerscope.evaluation.judges import STATES, Judge
from layerscope.evaluation.judging import Workers, quiet
from layerscope.evaluation.layer_encoder import LayerEncoder, Serving, wrapped
from layerscope.evaluation.probe_states import ProbeTask
from layerscope.evaluation.study import Study
from layerscope.evaluation.tasks import open_tasks
from layerscope.evaluation.texts import TextStates
from layerscope.models import LayeredModel, Loaded, LoadOptions, Override, find_layers, load, vectors_for
from layerscope.models.encode import TextEncoder
from layerscope.models.inspection import made_up_samples
from layerscope.probes.mixes import as_text, fixed_mixes
from layerscope.profiling.identity import check_unchanged, model_of, reusable, revision_of, run_of
from layerscope.runs.folder import locked
from layerscope.scores.evaluation import ORIGINS, Evaluation, ModelOrigin, add_origin
from layerscope.scores.opening import LOCAL, META, holds_scores, open_evaluation
from layerscope.scores.probe_results import Slot, has_probes, refuse_other_data

AGREES = 1e-3
PROBE = [
    "how old is the tree?",
    "A longer text about the age of one old oak tree, and of the elm that stands beside it.",
]


def evaluate_layers(asked: Asked) -> Evaluation:
    """Do what `evaluate` is asked for."""
    reporter, out = reporting(asked.progress), None if asked.out is None else Path(asked.out)
    if out is not None and not (out.is_dir() and holds_scores(out)):
        own_folder(out, "evaluation", ORIGINS)  # refuses a folder of other things
    tasks, probes = open_tasks(asked.tasks, asked.samples, asked.seed, asked.split, asked.shift)
    _refuse_dims(asked, any(tasks) or any(probe.kind.cuts for probe in probes))
    options, override, given, pooling = asked.of(LoadOptions), asked.of(Override), asked.model_or_run, asked.pooling
    run = run_of(given)
    if run is not None:
        given, override, options = model_of(run, override, options)
        pooling = run.info["options"].get("pooling", "auto") if pooling == "auto" else pooling
    loaded = load(given, options, asked.processor)
    slots_of = partial(_slots, sites=asked.sites, layers=asked.layers, pooling=pooling, mixes=asked.mixes)
    with ExitStack() as stack:
        folder = out or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        groups: dict[Any, list[ProbeTask]] = {}
        for probe in probes:  # linear and kNN probe of the same data share a study
            groups.setdefault((probe.kind.states, id(probe.data)), []).append(probe)
        studies = [Study(group, folder, loaded, override, slots_of, asked, reporter) for group in groups.values()]
        model = _layered(loaded, override) if tasks else studies[0].model
        depth, width, failed = model.stack.depth, model.stack.width, dict[str, str]()
        if tasks:
            slots, dims = slots_of(model), Serving(loaded).shorter(asked.dims, width, loaded.name)
            if run is not None:
                check_unchanged(run, model)
            workers = Workers(asked.jobs, len(slots) + 1)
            stack.push(workers.end)
        named = [(task.metadata.name, task.metadata.revision) for task in tasks]
        for name, data in [*named, *((task.name, study.data_of(task)) for study in studies for task in study.tasks)]:
            refuse_other_data(folder, name, data)
        stack.enter_context(locked(folder))
        stack.enter_context(quiet())
        known = ModelOrigin(_source(given), depth, Serving(loaded).width(width) if asked.dims else None)
        add_origin(folder, loaded.name, known)
        done = 0
        for study in studies:
            failed |= study.judge(run, done, len(probes))
            done += len(study.tasks)
        if tasks:
            wanted = [*slots, _last(model)]
            states = TextStates(model, wanted, folder / STATES, reporter, reusable(run, model, wanted))
            encoders = _encoders(model, states, slots, asked.mixes, dims)
            judge = Judge(folder, states, encoders, workers, asked.keep_states)
            judge.all(tasks)
            failed |= judge.failed
        if not any(folder.glob(f"results/**/{META}")) and not has_probes(folder):
            name, reason = next(iter(failed.items()))
            raise LayerscopeError(f"no task could be judged; {name}: {reason}")
        found = open_evaluation(folder)
        found.source = loaded.name if out is None else found.source
        found.failed = failed
        return found


def _refuse_dims(asked: Asked, apply: bool) -> None:
    if asked.dims and not apply:
        raise LayerscopeError(
            "`dims` applies to mteb tasks, linear-probe and knn-probe, and none is among the tasks: leave it out"
        )


def _source(given: Any) -> str | None:
    """Return what loads the model again, None for one in memory."""
    if not isinstance(given, (str, Path)):
        return None
    local = Path(given).expanduser()
    return str(local.resolve()) if local.exists() else str(given)


def _layered(loaded: Loaded, override: Override) -> LayeredModel:
    loaded = replace(loaded, prompt="")  # tasks say which prompt a text gets
    modality, samples = made_up_samples(loaded)
    if loaded.lack:
        raise LayerscopeError(loaded.lack)
    if modality != "text":
        raise LayerscopeError(f"{loaded.name} reads no texts ({modality}): give it probes, such as linear-probe:PATH")
    layered = find_layers(loaded, modality, samples, override, max_length=None, prompt="")
    if not isinstance(layered.encoder, TextEncoder) or layered.rank != 3:
        raise LayerscopeError(f"{loaded.name} gives no states of tokens: evaluate takes models of texts")
    return layered


def _slots(
    model: LayeredModel, sites: Sequence[str] | None, layers: str | Iterable[int], pooling: str, mixes: bool
) -> list[Slot]:
    """Return layer, site and pooling of every row that is to be judged."""
    depth = model.stack.depth
    found = list(dict.fromkeys(sites or [model.final]))
    for site in found:
        if site not in model.sites:
            raise LayerscopeError(f"site {site!r} is not one of this model{choices(site, model.sites, 'it has')}")
    numbers = list(range(depth + 1)) if layers == "all" else sorted({int(layer) for layer in layers})
    for layer in numbers:
        if layer > depth:
            raise LayerscopeError(f"layer {layer} does not exist: {model.loaded.name} has the layers 0 to {depth}")
    if mixes and len(numbers) < 2:
        raise LayerscopeError(f"layer {numbers[0]} alone cannot be mixed: give several `layers`, or leave `mixes` out")
    poolings = vectors_for(model, pooling, pairs=False).poolings
    return [(layer, site, name) for site in found for name in poolings for layer in numbers]


def _encoders(
    model: LayeredModel, states: TextStates, slots: list[Slot], mixes: bool, dims: Sequence[int]
) -> list[Any]:
    """Return the model as shipped, a view of each layer, of the mixes that need not be learned, and of fewer `dims`."""
    from mteb.models import ModelMeta

    serving, loaded = Serving(model.loaded), model.loaded
    revision = revision_of(loaded)
    dtype = str(next(p.dtype for p in model.module.parameters())).removeprefix("torch.")
    shared = {} if dtype == "float32" else {"dtype": dtype}

    def meta(**experiment: Any) -> Any:
        """Return mteb's description of one layer of a model; without `experiment` it is the model as shipped."""
        facts = {
            "name": loaded.name if "/" in loaded.name else LOCAL + loaded.name,
            "revision": revision,
            "modalities": ["text"],
            "max_tokens": model.max_length,
            "framework": ["PyTorch"],
            "experiment_kwargs": {**experiment, **shared} or None,
        }
        return ModelMeta.create_empty(overwrites=facts)

    shipped: Any = LayerEncoder(states, serving, *_last(model), meta())
    if loaded.served is not None and not _is_known(model, serving):
        shipped = wrapped(loaded.served)
        shipped.mteb_model_meta = meta()
    views = [
        LayerEncoder(states, serving, layer, site, name, meta(layer=layer, site=site, pooling=name))
        for layer, site, name in slots
    ]
    if mixes:
        fixed = fixed_mixes(sorted({layer for layer, *_ in slots}), model.stack.depth)
        for site, pooling in dict.fromkeys((site, pooling) for _, site, pooling in slots):
            for name, weights in fixed.items():
                about = meta(mix=name, weights=as_text(weights), site=site, pooling=pooling)
                views.append(LayerEncoder(states, serving, max(weights), site, pooling, about, weights))
    for (layer, site, name), number in product(slots, dims):
        about = meta(layer=layer, site=site, pooling=name, dims=number)
        views.append(LayerEncoder(states, serving, layer, site, name, about, dims=number))
    return [shipped, *views]


def _last(model: LayeredModel) -> Slot:
    """Return where the model as shipped takes its vector."""
    return model.stack.depth, model.final, model.pooling[0]


def _is_known(model: LayeredModel, serving: Serving) -> bool:
    """Return whether the last layer's states become what the SentenceTransformer itself gives; else it runs itself."""
    if model.loaded.pooling is None:
        return False
    own = np.asarray(model.loaded.served.encode(PROBE, prompt="", convert_to_numpy=True, show_progress_bar=False))
    with tempfile.TemporaryDirectory() as folder:
        states = TextStates(model, [_last(model)], Path(folder))
        found = serving.finish(states.vectors(states.keys(PROBE), *_last(model)))
    norm = np.linalg.norm
    return own.shape == found.shape and bool(np.all(norm(own - found, axis=1) <= AGREES * norm(own, axis=1)))

"""The work of `evaluate`: every layer of a model on tasks, each text embedded once."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from layerscope.core.errors import LayerscopeError, choices
from layerscope.core.options import Asked
from layerscope.core.progress import Console, Silent, Teller
from layerscope.evaluation.layer_encoder import AsShipped, LayerEncoder, Serving, model_meta, wrapped
from layerscope.evaluation.mteb_tasks import open_tasks
from layerscope.evaluation.one_layer import quiet
from layerscope.evaluation.probing.probe_judge import ProbeJudge
from layerscope.evaluation.probing.tasks import open_probes, split_tasks
from layerscope.evaluation.stored_texts import Place
from layerscope.evaluation.task_judge import Judge
from layerscope.evaluation.texts import TextStates
from layerscope.evaluation.workers import Workers, checked_jobs
from layerscope.models import LayeredModel, Loaded, LoadOptions, Override, find_layers, load, vectors_for
from layerscope.models.encode import TextEncoder
from layerscope.models.inspection import made_up_samples
from layerscope.profiling.identity import revision_of
from layerscope.profiling.reopening import check_unchanged, model_of, reusable, run_of
from layerscope.runs.lock import locked
from layerscope.scores.evaluation import Evaluation
from layerscope.scores.opening import open_evaluation
from layerscope.scores.origins import ModelOrigin, add_origin
from layerscope.scores.probe_results import has_probes, refuse_other_data

STATES = "states"
PROBE = [
    "how old is the tree?",
    "A longer text about the age of one old oak tree, and of the elm that stands beside it.",
]


def evaluate_layers(asked: Asked) -> Evaluation:
    """Do what `evaluate` is asked for."""
    teller: Teller = Console() if asked.progress else Silent()
    samples, seed, out, pooling, model_or_run = asked.samples, asked.seed, asked.out, asked.pooling, asked.model_or_run
    named, others = split_tasks(asked.tasks)
    chosen = open_tasks(others, samples, seed) if others or not named else []
    probes = open_probes(named, samples, seed)
    options, override = asked.of(LoadOptions), asked.of(Override)
    run = run_of(model_or_run)
    if run is not None:
        model_or_run, override, options = model_of(run, override, options)
        pooling = run.info["options"].get("pooling", "auto") if pooling == "auto" else pooling
    loaded = load(model_or_run, options, asked.processor)
    where = partial(_places, sites=asked.sites, layers=asked.layers, pooling=pooling)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()) if out is None else out).expanduser()
        probing = ProbeJudge(folder, loaded, override, probes, where, seed, asked.keep_states, teller, run)
        layered = _layered(loaded, override) if chosen else None
        places = where(layered) if layered is not None else []
        if run is not None and layered is not None:
            check_unchanged(run, layered)
        for task in chosen:
            refuse_other_data(folder, task.metadata.name, task.metadata.revision)
        workers = stack.enter_context(Workers(checked_jobs(asked.jobs, len(places) + 1)))
        stack.enter_context(locked(folder))
        stack.enter_context(quiet())
        depth = probing.depth if layered is None else layered.stack.depth
        if depth is not None:
            add_origin(folder, loaded.name, ModelOrigin(_source(model_or_run), depth))
        probing.all()
        if layered is None:
            return _opened(folder, probing.failed, loaded.name if out is None else None)
        wanted = [*places, _last(layered)]
        states = TextStates(layered, wanted, folder / STATES, teller, reusable(run, layered, wanted))
        encoders = _encoders(layered, states, places)
        judge = Judge(folder, states, encoders, workers, asked.keep_states, teller)
        judge.all(chosen)
        return _opened(folder, probing.failed | judge.failed, loaded.name if out is None else None)


def _source(given: Any) -> str | None:
    """Return what loads the model again, None for one in memory."""
    if not isinstance(given, (str, Path)):
        return None
    return str(Path(given).expanduser().resolve()) if Path(given).expanduser().exists() else str(given)


def _opened(folder: Path, failed: dict[str, str], source: str | None) -> Evaluation:
    if not any(folder.glob("results/**/model_meta.json")) and not has_probes(folder):
        task, reason = next(iter(failed.items()))
        raise LayerscopeError(f"no task could be judged; {task}: {reason}")
    found = open_evaluation(folder)
    found.source = source or found.source
    found.failed = failed
    return found


def _layered(loaded: Loaded, override: Override) -> LayeredModel:
    loaded = replace(loaded, prompt="")  # tasks say which prompt a text gets
    modality, samples = made_up_samples(loaded)
    if loaded.lack:
        raise LayerscopeError(loaded.lack)
    if modality != "text":
        raise LayerscopeError(
            f"{loaded.name} reads no texts ({modality}): give it probes, such as linear-probe:PATH, and no task of mteb"
        )
    layered = find_layers(loaded, modality, samples, override, max_length=None, prompt="")
    if not isinstance(layered.encoder, TextEncoder) or layered.rank != 3:
        raise LayerscopeError(f"{loaded.name} gives no states of tokens: evaluate takes models of texts")
    return layered


def _places(
    model: LayeredModel, sites: str | Sequence[str] | None, layers: str | Iterable[int], pooling: str
) -> list[Place]:
    """Return layer, site and pooling of every row that is to be judged."""
    depth = model.stack.depth
    asked = sites.split(",") if isinstance(sites, str) else sites
    found = [model.final] if asked is None else list(dict.fromkeys(site.strip() for site in asked))
    for site in found:
        if site not in model.sites:
            raise LayerscopeError(f"site {site!r} is not one of this model{choices(site, model.sites, 'it has')}")
    numbers = list(range(depth + 1)) if layers == "all" else sorted({int(layer) for layer in layers})
    for layer in numbers:
        if not 0 <= layer <= depth:
            raise LayerscopeError(f"layer {layer} does not exist: {model.loaded.name} has the layers 0 to {depth}")
    poolings = vectors_for(model, pooling, pairs=False).poolings
    if not numbers or not found:
        raise LayerscopeError("no layer is left to evaluate: name some, or leave layers and sites out")
    return [(layer, site, name) for site in found for name in poolings for layer in numbers]


def _encoders(model: LayeredModel, states: TextStates, places: list[Place]) -> list[Any]:
    """Return the model as shipped, then a view of each layer."""
    serving, loaded = Serving(model.loaded), model.loaded
    revision = revision_of(loaded)
    dtype = str(next(p.dtype for p in model.module.parameters())).removeprefix("torch.")
    shared = {} if dtype == "float32" else {"dtype": dtype}

    def meta(**experiment: Any) -> Any:
        return model_meta(loaded.name, revision, {**experiment, **shared}, model.max_length)

    known = loaded.served is None or _is_known(model, serving)
    baseline: Any
    baseline = (
        LayerEncoder(states, serving, *_last(model), meta()) if known else AsShipped(wrapped(loaded.served), meta())
    )
    views = [
        LayerEncoder(states, serving, layer, site, name, meta(layer=layer, site=site, pooling=name))
        for layer, site, name in places
    ]
    return [baseline, *views]


def _last(model: LayeredModel) -> Place:
    """Return where the model as shipped takes its vector."""
    return model.stack.depth, model.final, model.pooling[0]


def _is_known(model: LayeredModel, serving: Serving) -> bool:
    """Return whether the last layer's states become what the SentenceTransformer itself gives; else it runs itself."""
    if model.loaded.pooling is None:
        return False
    with tempfile.TemporaryDirectory() as folder:
        states = TextStates(model, [_last(model)], Path(folder))
        return serving.agrees(model.loaded.served, states, _last(model), PROBE)

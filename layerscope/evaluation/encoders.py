"""A model as tasks of mteb read it: the tower whose layers are judged, what stands beside it, and every row."""

import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from layerscope.core.errors import LayerscopeError, choices, listed
from layerscope.core.processes import Team
from layerscope.core.progress import Reporter
from layerscope.evaluation.layer_encoder import LayerEncoder, Serving, wrapped
from layerscope.evaluation.stored_texts import TextStates
from layerscope.models import LayeredModel, Loaded, Override, find_layers, vectors_for
from layerscope.models.encode import PLURAL, TextEncoder, modalities_of
from layerscope.models.identity import revision_of
from layerscope.models.inspection import made_up_samples
from layerscope.models.of_run import reusable
from layerscope.probes.mixes import as_text, fixed_mixes
from layerscope.runs import Run
from layerscope.runs.states import OWN, PROJECTED
from layerscope.scores.opening import LOCAL
from layerscope.scores.probe_results import Slot

AGREES = 1e-3
PROBE = [
    "how old is the tree?",
    "A longer text about the age of one old oak tree, and of the elm that stands beside it.",
]


@dataclass(frozen=True)
class Readers:
    """The model whose layers are judged, as it reads one modality, and `beside` it as it reads the tasks' others.

    Those are the other towers, whose last layer in the shared space is compared with every layer of
    the judged one.
    """

    model: LayeredModel
    beside: tuple[LayeredModel, ...] = ()

    @property
    def sites(self) -> tuple[str, ...]:
        """The sites that can be judged, that by default last; towers are compared in the space that they share."""
        if self.beside:
            return (PROJECTED,)
        return self.model.sites if self.model.projection is None else (PROJECTED, *self.model.sites)


def readers_of(loaded: Loaded, override: Override, tasks: Sequence[Any]) -> Readers:
    """Return a model as these tasks read it; raises `LayerscopeError` where it cannot read them, or not together."""
    known = modalities_of(loaded.module)
    if known == ["tensor"] and loaded.processor is not None:
        known = ["image"]  # a plain module, as timm's, with what makes its inputs
    for task in tasks:
        lacking = [PLURAL.get(kind, kind) for kind in task.metadata.modalities if kind not in known]
        if lacking:
            mend = (
                "give it probes, such as linear-probe:PATH"
                if lacking == ["texts"]
                else "give a model that does"
            )
            name = f"{task.metadata.name}: " if len(tasks) > 1 else ""
            raise LayerscopeError(
                f"{name}{loaded.name} reads no {listed(lacking)} ({', '.join(known)}): {mend}"
            )
    shared = set.intersection(*(set(task.metadata.modalities) for task in tasks))
    if not shared:
        raise LayerscopeError(
            "the tasks read different modalities, whose layers are not the same: evaluate them separately"
        )
    judged = min(shared, key=lambda kind: (kind == "text", kind))
    others = sorted({kind for task in tasks for kind in task.metadata.modalities} - {judged})
    model = layered(loaded, override, judged)
    beside = tuple(layered(loaded, Override(), kind) for kind in others)
    widths = {
        None if tower.projection is None else tower.projection.width for tower in (model, *beside)
    }
    if beside and (None in widths or len(widths) > 1):
        kinds = " and ".join(PLURAL[kind] for kind in (judged, *others))
        raise LayerscopeError(
            f"{loaded.name} has no space that {kinds} share: give tasks of one of them"
        )
    return Readers(model, beside)


def layered(loaded: Loaded, override: Override, modality: str) -> LayeredModel:
    """Return a model with the layers that read a modality; raises `LayerscopeError` where those of texts have none."""
    loaded = replace(loaded, prompt="")  # tasks say which prompt a text gets
    read, samples = made_up_samples(loaded, modality)
    if loaded.lack and modality == "text":
        raise LayerscopeError(loaded.lack)
    if read != modality:
        raise LayerscopeError(
            f"{loaded.name} has no tokenizer to read texts with: save one with it"
        )
    found = find_layers(loaded, modality, samples, override, max_length=None, prompt="")
    if modality == "text" and (not isinstance(found.encoder, TextEncoder) or found.rank != 3):
        raise LayerscopeError(
            f"{loaded.name} gives no states of tokens: evaluate takes models of texts"
        )
    return found


def slots_of(
    model: LayeredModel,
    sites: Sequence[str] | None,
    layers: str | Iterable[int],
    pooling: str,
    mixes: bool,
    known: Sequence[str] | None = None,
) -> list[Slot]:
    """Return layer, site and pooling of every row that is to be judged, at sites among those `known`, or the last."""
    depth, known = model.stack.depth, known or model.sites
    found = list(dict.fromkeys(sites or [known[-1]]))
    for site in found:
        if site not in known:
            raise LayerscopeError(
                f"site {site!r} is not one of this model{choices(site, known, 'it has')}"
            )
    numbers = (
        list(range(depth + 1)) if layers == "all" else sorted({int(layer) for layer in layers})
    )
    for layer in numbers:
        if layer > depth:
            raise LayerscopeError(
                f"layer {layer} does not exist: {model.loaded.name} has the layers 0 to {depth}"
            )
    if mixes and len(numbers) < 2:
        raise LayerscopeError(
            f"layer {numbers[0]} alone cannot be mixed: give several `layers`, or leave `mixes` out"
        )
    poolings = vectors_for(model, pooling, pairs=False).poolings
    return [
        (layer, site, name)
        for site in found
        for name in ((OWN,) if site == PROJECTED else poolings)
        for layer in numbers
    ]


def stores_of(
    readers: Readers,
    slots: list[Slot],
    folder: Path,
    reporter: Reporter,
    run: Run | None,
    team: Team,
) -> list[TextStates]:
    """Return the states of the judged tower, some of which a run may have, and of those beside it."""
    model, wanted = readers.model, [*slots, last_of(readers.model)]
    reused = reusable(run, model, wanted)  # no run has those of images by what the model is shown
    stores = [TextStates(model, wanted, folder, reporter, reused, team)]
    return stores + [
        TextStates(tower, [last_of(tower)], folder, reporter, team=team) for tower in readers.beside
    ]


def encoders_of(
    readers: Readers, stores: Sequence[TextStates], slots: list[Slot], mixes: bool
) -> list[Any]:
    """Return the model as shipped, a view of each layer, and of the mixes that need not be learned.

    `stores` have the states of the readers' towers.
    """
    from mteb.models import ModelMeta

    model, (states, *beside) = readers.model, stores
    serving, loaded = Serving(model.loaded), model.loaded
    revision = revision_of(loaded)
    dtype = str(next(p.dtype for p in model.module.parameters())).removeprefix("torch.")
    shared = {} if dtype == "float32" else {"dtype": dtype}

    def meta(**experiment: Any) -> Any:
        """Return mteb's description of one layer of a model; without `experiment` it is the model as shipped."""
        facts = {
            "name": loaded.name if "/" in loaded.name else LOCAL + loaded.name,
            "revision": revision,
            "modalities": [store.modality for store in stores],
            "max_tokens": model.max_length if states.modality == "text" else None,
            "framework": ["PyTorch"],
            "experiment_kwargs": {**experiment, **shared} or None,
        }
        return ModelMeta.create_empty(overwrites=facts)

    view = partial(LayerEncoder, states, tuple(beside), serving)
    shipped: Any = view(*last_of(model), meta())
    if loaded.served is not None and not _is_known(model, serving):
        shipped = wrapped(loaded.served)
        shipped.mteb_model_meta = meta()
    views = [
        view(layer, site, name, meta(layer=layer, site=site, pooling=name))
        for layer, site, name in slots
    ]
    if mixes:
        fixed = fixed_mixes(sorted({layer for layer, *_ in slots}), model.stack.depth)
        for site, pooling in dict.fromkeys((site, pooling) for _, site, pooling in slots):
            for name, weights in fixed.items():
                about = meta(mix=name, weights=as_text(weights), site=site, pooling=pooling)
                views.append(view(max(weights), site, pooling, about, weights))
    return [shipped, *views]


def last_of(model: LayeredModel) -> Slot:
    """Return where the model as shipped takes its vector."""
    if model.projection is not None:
        return model.stack.depth, PROJECTED, OWN
    return model.stack.depth, model.final, model.pooling[0]


def _is_known(model: LayeredModel, serving: Serving) -> bool:
    """Return whether the last layer's states become what the SentenceTransformer itself gives; else it runs itself."""
    if model.loaded.pooling is None:
        return False
    own = np.asarray(
        model.loaded.served.encode(PROBE, prompt="", convert_to_numpy=True, show_progress_bar=False)
    )
    with tempfile.TemporaryDirectory() as folder:
        states = TextStates(model, [last_of(model)], Path(folder))
        found = serving.finish(states.vectors(states.keys(PROBE), *last_of(model)))
    norm = np.linalg.norm
    return own.shape == found.shape and bool(
        np.all(norm(own - found, axis=1) <= AGREES * norm(own, axis=1))
    )

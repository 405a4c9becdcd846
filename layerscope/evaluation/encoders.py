"""A model as tasks of mteb read it: the tower whose layers are judged, what stands beside it, and every row."""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from layerscope.core.errors import LayerscopeError, choices, listed
from layerscope.core.processes import Team
from layerscope.core.progress import Reporter
from layerscope.evaluation.layer_encoder import LayerEncoder, Serving, wrapped
from layerscope.evaluation.options import Positions
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
    modalities = [set(task.metadata.modalities) for task in tasks]
    _refuse_unread(loaded, tasks)
    shared = set.intersection(*modalities)
    if not shared:
        raise LayerscopeError(
            "the tasks read different modalities, whose layers are not the same: evaluate them separately"
        )
    judged = min(shared, key=lambda kind: (kind == "text", kind))
    others = sorted(set.union(*modalities) - {judged})
    model = layered(loaded, override, judged)
    beside = tuple(layered(loaded, Override(), kind) for kind in others)
    projections = [tower.projection for tower in (model, *beside)]
    widths = {None if projection is None else projection.width for projection in projections}
    if beside and (None in widths or len(widths) > 1):
        kinds = " and ".join(PLURAL[kind] for kind in (judged, *others))
        raise LayerscopeError(
            f"{loaded.name} has no space that {kinds} share: give tasks of one of them"
        )
    return Readers(model, beside)


def _refuse_unread(loaded: Loaded, tasks: Sequence[Any]) -> None:
    """Raise for a task of a modality that the model does not read."""
    reads = modalities_of(loaded.module)
    if reads == ["tensor"] and loaded.processor is not None:
        reads = ["image"]  # a plain module, as timm's, with what makes its inputs
    for task in tasks:
        lacking = [PLURAL.get(kind, kind) for kind in task.metadata.modalities if kind not in reads]
        if lacking:
            mend = "give a model that does"
            if lacking == ["texts"]:
                mend = "give it probes, such as linear-probe:PATH"
            name = f"{task.metadata.name}: " if len(tasks) > 1 else ""
            raise LayerscopeError(
                f"{name}{loaded.name} reads no {listed(lacking)} ({', '.join(reads)}): {mend}"
            )


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
    model = find_layers(loaded, modality, samples, override, max_length=None, prompt="")
    if modality == "text" and (not isinstance(model.encoder, TextEncoder) or model.rank != 3):
        raise LayerscopeError(
            f"{loaded.name} gives no states of tokens: evaluate takes models of texts"
        )
    return model


def slots_of(model: LayeredModel, positions: Positions, sites: Sequence[str] = ()) -> list[Slot]:
    """Return layer, site and pooling of every row that is to be judged, at sites among these, by default the last.

    Without `sites` they are the model's.
    """
    depth, there = model.stack.depth, tuple(sites) or model.sites
    chosen = list(dict.fromkeys(positions.sites or there[-1:]))
    for site in chosen:
        if site not in there:
            raise LayerscopeError(
                f"site {site!r} is not one of this model{choices(site, there, 'it has')}"
            )
    layers = list(range(depth + 1))
    if positions.layers != "all":
        layers = sorted({int(layer) for layer in positions.layers})
    if layers[-1] > depth:
        beyond = next(layer for layer in layers if layer > depth)
        raise LayerscopeError(
            f"layer {beyond} does not exist: {model.loaded.name} has the layers 0 to {depth}"
        )
    if positions.mixes and len(layers) < 2:
        raise LayerscopeError(
            f"layer {layers[0]} alone cannot be mixed: give several `layers`, or leave `mixes` out"
        )
    poolings = vectors_for(model, positions.pooling, pairs=False).poolings
    slots: list[Slot] = []
    for site in chosen:
        for pooling in (OWN,) if site == PROJECTED else poolings:
            slots += [(layer, site, pooling) for layer in layers]
    return slots


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
    model, (states, *beside) = readers.model, stores
    serving, loaded = Serving(model.loaded), model.loaded
    modalities = [store.modality for store in stores]
    description = partial(_description, model, revision_of(loaded), modalities)
    view = partial(LayerEncoder, states, tuple(beside), serving)
    shipped: Any = view(*last_of(model), description())
    if loaded.served is not None and not _is_known(model, serving):
        shipped = wrapped(loaded.served)
        shipped.mteb_model_meta = description()
    views = [
        view(layer, site, pooling, description(layer=layer, site=site, pooling=pooling))
        for layer, site, pooling in slots
    ]
    if mixes:
        layers = sorted({layer for layer, *_ in slots})
        places = dict.fromkeys((site, pooling) for _, site, pooling in slots)
        mixed = fixed_mixes(layers, model.stack.depth)
        for site, pooling in places:
            for name, weights in mixed.items():
                about = description(mix=name, weights=as_text(weights), site=site, pooling=pooling)
                views.append(view(max(weights), site, pooling, about, weights))
    return [shipped, *views]


def _description(
    model: LayeredModel, revision: str, modalities: Sequence[str], **layer: Any
) -> Any:
    """Return mteb's description of one layer of a model; without `layer` it is the model as shipped."""
    from mteb.models import ModelMeta

    name = model.loaded.name
    dtype = str(next(p.dtype for p in model.module.parameters())).removeprefix("torch.")
    if dtype != "float32":
        layer["dtype"] = dtype
    facts = {
        "name": name if "/" in name else LOCAL + name,
        "revision": revision,
        "modalities": list(modalities),
        "max_tokens": model.max_length if modalities[0] == "text" else None,
        "framework": ["PyTorch"],
        "experiment_kwargs": layer or None,
    }
    return ModelMeta.create_empty(overwrites=facts)


def last_of(model: LayeredModel) -> Slot:
    """Return where the model as shipped takes its vector."""
    if model.projection is not None:
        return model.stack.depth, PROJECTED, OWN
    return model.stack.depth, model.final, model.pooling[0]


def _is_known(model: LayeredModel, serving: Serving) -> bool:
    """Return whether the last layer's states become what the SentenceTransformer itself gives; else it runs itself."""
    if model.loaded.pooling is None:
        return False
    served = np.asarray(
        model.loaded.served.encode(PROBE, prompt="", convert_to_numpy=True, show_progress_bar=False)
    )
    with tempfile.TemporaryDirectory() as folder:
        states = TextStates(model, [last_of(model)], Path(folder))
        finished = serving.finish(states.vectors(states.keys(PROBE), *last_of(model)))
    norm = np.linalg.norm
    return served.shape == finished.shape and bool(
        np.all(norm(served - finished, axis=1) <= AGREES * norm(served, axis=1))
    )

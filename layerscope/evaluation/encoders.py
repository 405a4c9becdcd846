"""A model as tasks of mteb read it, and every row that is judged: the model as shipped, its layers and mixes."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from layerscope.core.errors import LayerscopeError, choices, listed
from layerscope.evaluation.layer_encoder import LayerEncoder, Serving
from layerscope.evaluation.options import Positions
from layerscope.evaluation.stored_texts import TextStates
from layerscope.models import LayeredModel, Loaded, Override, find_layers, vectors_for
from layerscope.models.encode import PLURAL, TextEncoder, modalities_of
from layerscope.models.identity import revision_of
from layerscope.models.inspection import made_up_samples
from layerscope.probes.mixes import as_text, fixed_mixes
from layerscope.runs.states import OWN, PROJECTED
from layerscope.scores.opening import LOCAL
from layerscope.scores.probe_results import Slot


def reader_of(loaded: Loaded, override: Override, tasks: Sequence[Any]) -> LayeredModel:
    """Return a model as these tasks read it; raises `LayerscopeError` where it cannot read them, or not together."""
    modalities = {
        kind: task.metadata.name for task in tasks for kind in task.metadata.modalities
    }
    if len(modalities) > 1:
        raise LayerscopeError(
            f"the tasks read {listed(list(modalities))}, whose layers are not the same: evaluate them separately"
        )
    ((modality, name),) = modalities.items()
    reads = modalities_of(loaded.module)
    if reads == ["tensor"] and loaded.processor is not None:
        reads = ["image"]  # a plain module, as timm's, with what makes its inputs
    if modality not in reads:
        mend = "give a model that does"
        if modality == "text":
            mend = "give it probes, such as linear-probe:PATH"
        raise LayerscopeError(
            f"{name}: {loaded.name} reads no {PLURAL[modality]} ({', '.join(reads)}): {mend}"
        )
    return layered(loaded, override, modality)


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
    if modality == "text" and (
        not isinstance(model.encoder, TextEncoder) or model.rank != 3
    ):
        raise LayerscopeError(
            f"{loaded.name} gives no states of tokens: evaluate takes models of texts"
        )
    return model


def slots_of(
    model: LayeredModel, positions: Positions, projects: bool = False
) -> list[Slot]:
    """Return layer, site and pooling of every row that is to be judged, by default at the last site.

    With `projects` a model's space that two towers share is a site, too.
    """
    depth, there = model.stack.depth, model.sites
    if projects and model.projection is not None:
        there = (PROJECTED, *there)
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


def encoders_of(
    model: LayeredModel, states: TextStates, slots: Sequence[Slot], mixes: bool
) -> list[Any]:
    """Return the model as shipped, a view of each layer, and of the mixes that need not be learned."""
    serving, loaded = Serving(model.loaded), model.loaded
    description = partial(_description, model, revision_of(loaded))
    view = partial(LayerEncoder, states, serving)
    shipped = view(*last_of(model), description())
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
                about = description(
                    mix=name, weights=as_text(weights), site=site, pooling=pooling
                )
                views.append(view(max(weights), site, pooling, about, weights))
    return [shipped, *views]


def _description(model: LayeredModel, revision: str, **layer: Any) -> Any:
    """Return mteb's description of one layer of a model; without `layer` it is the model as shipped."""
    from mteb.models import ModelMeta

    name = model.loaded.name
    dtype = str(next(p.dtype for p in model.module.parameters())).removeprefix("torch.")
    if dtype != "float32":
        layer["dtype"] = dtype
    facts = {
        "name": name if "/" in name else LOCAL + name,
        "revision": revision,
        "modalities": [model.encoder.modality],
        "max_tokens": model.max_length if model.encoder.modality == "text" else None,
        "framework": ["PyTorch"],
        "experiment_kwargs": layer or None,
    }
    return ModelMeta.create_empty(overwrites=facts)


def last_of(model: LayeredModel) -> Slot:
    """Return where the model as shipped takes its vector."""
    if model.projection is not None:
        return model.stack.depth, PROJECTED, OWN
    return model.stack.depth, model.final, model.pooling[0]

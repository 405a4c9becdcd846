"""A model as tasks of mteb read it, and every row that is judged: the model as shipped, its layers and mixes."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any

from layerscope.core import LayerscopeError, choices
from layerscope.evaluation.layer_encoder import LayerEncoder, Serving
from layerscope.evaluation.options import Positions
from layerscope.evaluation.stored_texts import TextStates
from layerscope.models import (
    LayeredModel,
    Loaded,
    Override,
    TextEncoder,
    dtype_of,
    find_layers,
    made_up_samples,
    modalities_of,
    vectors_for,
)
from layerscope.models.identity import revision_of
from layerscope.probes.mixes import as_text, fixed_mixes
from layerscope.scores.opening import LOCAL
from layerscope.scores.probe_results import Slot


def reader_of(loaded: Loaded, override: Override) -> LayeredModel:
    """Return a model as tasks of mteb read it; raises `LayerscopeError` for one that does not embed texts alone."""
    reads = modalities_of(loaded.module)
    if "text" not in reads:
        raise LayerscopeError(
            f"{loaded.name} reads no texts ({', '.join(reads)}): give it probes, such as linear-probe:PATH"
        )
    if loaded.lack:
        raise LayerscopeError(loaded.lack)
    # tasks say which prompt a text gets
    loaded = replace(loaded, prompt="")
    modality, samples = made_up_samples(loaded, "text")
    if modality != "text":
        raise LayerscopeError(
            f"{loaded.name} has no tokenizer to read texts with: save one with it"
        )
    model = find_layers(loaded, "text", samples, override)
    if not isinstance(model.encoder, TextEncoder) or model.rank != 3:
        raise LayerscopeError(
            f"{loaded.name} gives no states of tokens: evaluate takes models of texts"
        )
    if model.projection is not None:
        raise LayerscopeError(
            f"{loaded.name} has two towers: give it probes, such as linear-probe:PATH"
        )
    return model


def slots_of(model: LayeredModel, positions: Positions) -> list[Slot]:
    """Return layer, site and pooling of every row that is to be judged, by default at the last site."""
    depth = model.depth
    there = model.sites
    chosen = list(dict.fromkeys(positions.sites or there[-1:]))
    for site in chosen:
        if site not in there:
            raise LayerscopeError(
                f"site {site!r} is not one of this model{choices(site, there, 'it has')}"
            )
    layers = list(model.layers)
    if positions.layers != "all":
        layers = sorted({int(layer) for layer in positions.layers})
    if layers[-1] > depth:
        raise LayerscopeError(
            f"layer {layers[-1]} does not exist: {model.name} has the layers 0 to {depth}"
        )
    if positions.mixes and len(layers) < 2:
        raise LayerscopeError(
            f"layer {layers[0]} alone cannot be mixed: give several `layers`, or leave `mixes` out"
        )
    poolings = vectors_for(model, positions.pooling, pairs=False).poolings
    return [
        (layer, site, pooling)
        for site, pooling, layer in product(chosen, poolings, layers)
    ]


def encoders_of(
    model: LayeredModel, states: TextStates, slots: Sequence[Slot], mixes: bool
) -> list[Any]:
    """Return the model as shipped, a view of each layer, and of the mixes that need not be learned."""
    serving = Serving(model.loaded)
    revision = revision_of(model.loaded)

    def view(weights: dict[Slot, float], about: dict[str, Any]) -> LayerEncoder:
        described = _description(model, revision, about)
        return LayerEncoder(states, serving, weights, described)

    views = [view({last_of(model): 1.0}, {})]
    names = ("layer", "site", "pooling")
    views += [view({slot: 1.0}, dict(zip(names, slot, strict=True))) for slot in slots]
    if not mixes:
        return views
    layers = sorted({layer for layer, *_ in slots})
    places = dict.fromkeys(slot[1:] for slot in slots)
    mixed = fixed_mixes(layers, model.depth)
    for (site, pooling), (name, weights) in product(places, mixed.items()):
        of_slots = {(layer, site, pooling): weights[layer] for layer in weights}
        about = {"mix": name, "weights": as_text(weights)}
        views.append(view(of_slots, about | {"site": site, "pooling": pooling}))
    return views


def _description(model: LayeredModel, revision: str, about: dict[str, Any]) -> Any:
    """Return mteb's description of one layer of a model; without `about` it is the model as shipped."""
    from mteb.models import ModelMeta

    name = model.name
    if "/" not in name:
        name = LOCAL + name
    if model.loaded.chat:
        about = about | {"chat": True}
    dtype = dtype_of(model.module)
    if dtype != "float32":
        about = about | {"dtype": dtype}
    facts = {
        "name": name,
        "revision": revision,
        "modalities": ["text"],
        "max_tokens": model.max_length,
        "framework": ["PyTorch"],
        "experiment_kwargs": about or None,
    }
    return ModelMeta.create_empty(overwrites=facts)


def last_of(model: LayeredModel) -> Slot:
    """Return where the model as shipped takes its vector."""
    return model.depth, model.final, model.pooling[0]

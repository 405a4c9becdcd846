"""A job whose states another engine wrote: what of a profile can be had without the model."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from layerscope.core.errors import LayerscopeError, spans
from layerscope.core.options import Asked, declared
from layerscope.inputs import Corpus, draw
from layerscope.inputs.columns import Columns
from layerscope.inputs.states import corpus_of, open_states
from layerscope.models import LoadOptions, Vectors, load, vectors_for
from layerscope.models.placing import torch_device
from layerscope.models.pooling import parse
from layerscope.models.stored import StatesModel, states_model
from layerscope.profiling.plan import Job, Options
from layerscope.profiling.verb import profile
from layerscope.runs.registry import Needs

OF_MODELS = (
    "processor", "chunk", "repeat_tokens", "random_tokens", "prompt", "sublayers", "view_kinds", "max_length", "part",
    "blocks", "norm",
)  # fmt: skip
"""Options that take a model to run."""


def of_states(asked: Asked, options: Options) -> tuple[Job, None, Any]:
    """Return the job of a profile of states, no stream, and what its data are called.

    Raises `LayerscopeError` for options that take the model itself.
    """
    if asked.model is not None:
        raise LayerscopeError(
            "`states` replace a model: give one of the two, and the model's norm and head with `head`"
        )
    wrong = next(
        (name for name in OF_MODELS if getattr(asked, name) != declared(profile)[name].default),
        None,
    )
    wrong = "keep_states" if options.reservoir is not None else wrong
    if wrong is not None:
        raise LayerscopeError(
            f"`{wrong}` needs a model that runs, and there are only states: leave it out"
        )
    states = open_states(asked.states, asked.layers, options.pooling)
    corpus = corpus_of(
        states, asked.data, asked.labels, Columns(asked.text_column, asked.label_column)
    )
    load_options = asked.of(LoadOptions, head_only=True)
    head = None if asked.head is None else load(asked.head, load_options)
    model = states_model(states, head, torch_device(load_options))
    options.views = 0
    own = (
        f"the states of {spans(states.layers, 'layer')} are read from {states.path}: no model runs"
    )
    notes, vectors = [own, *states.notes, *model.notes], Vectors(("mean",))
    if states.about.get("site") == "normed":
        notes.append("the states are from after the final norm, and are listed at the site raw")
    last, depth = (
        states.layers[-1],
        states.about.get("depth") or (model.lens and model.lens.stack.depth),
    )
    if not model.whole:
        of = (
            f"layer {last} of {depth}"
            if depth
            else f"layer {last}, which may not be the model's last"
        )
        notes.append(f"the states end at {of}: findings on the last layer are about layer {last}")
    if len(states.layers) <= last:
        notes.append(
            "other layers are missing: saturation and steps from layer to layer use only these"
        )
    if model.rank == 3:
        vectors = vectors_for(
            model, options.pooling, options.wants("pairs") or options.wants("path")
        )
    elif "pooling" in states.about:
        vectors = Vectors((states.about["pooling"],))
    elif options.pooling != "auto":
        vectors = Vectors(parse(options.pooling))
    else:
        notes.append(
            "the states are pooled and assumed to be means: name another pooling with `pooling`"
        )
    if len(vectors.poolings) > 1 and model.rank == 2:
        raise LayerscopeError(
            f"pooling is {options.pooling}, and the states were pooled in one way: name that"
        )
    model, corpus = replace(model, notes=tuple(notes)), draw(corpus, options.samples, options.seed)
    job = Job(_as_given(model, corpus, asked), corpus, options, vectors)
    return job, None, asked.states if asked.data is None else asked.data


def _as_given(model: StatesModel, corpus: Corpus, asked: Asked) -> StatesModel:
    """Return states without the fingerprint of what they were extracted from where samples or labels differ now."""
    if asked.data is None and asked.labels is None and len(corpus) == len(model.states.names):
        return model
    about = {name: value for name, value in model.states.about.items() if name != "fingerprint"}
    return replace(model, states=replace(model.states, about=about))


def lack_of_states(needs: Needs, model: StatesModel) -> str | None:
    """Return why states do not give what a metric needs, None where they do."""
    if needs == "views":
        return "views of a sample need a model that runs"
    if needs == "tokens" and model.rank == 2:
        return "the states are pooled"
    return (
        "no head reads them: name its model with `head`"
        if needs == "lens" and model.lens is None
        else None
    )


def left_out(missing: Mapping[str, str], is_set: bool) -> list[str]:
    """Return a line on the metrics of a set that states do not give, by reason; raises for one asked for by name."""
    for name, reason in missing.items() if not is_set else ():
        raise LayerscopeError(
            f"{name} cannot be computed from these states ({reason}): leave it out of `metrics`"
        )
    reasons = dict.fromkeys(missing.values())
    return [
        f"not measured: {', '.join(n for n in missing if missing[n] == reason)} ({reason})"
        for reason in reasons
    ]

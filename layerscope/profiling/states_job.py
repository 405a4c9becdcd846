"""A job whose states another engine wrote: what of a profile can be had without the model."""

from collections.abc import Mapping
from dataclasses import replace

from layerscope.core.errors import LayerscopeError, spans
from layerscope.inputs import draw
from layerscope.inputs.columns import Columns
from layerscope.inputs.state_files import open_states
from layerscope.inputs.states import corpus_of
from layerscope.models import Vectors, load, vectors_for
from layerscope.models.placing import torch_device
from layerscope.models.pooling import parse
from layerscope.models.stored import StatesModel, states_model
from layerscope.profiling.options import PassOptions, ProfileOptions
from layerscope.profiling.plan import Job
from layerscope.runs.registry import Needs

OF_MODELS = (
    "processor", "chunk", "repeat_tokens", "random_tokens", "prompt", "sublayers", "view_kinds", "max_length", "part",
    "blocks", "norm", "keep_states",
)  # fmt: skip
"""Options that take a model to run."""


def of_states(options: ProfileOptions) -> Job:
    """Return the job of a profile of states.

    Raises `LayerscopeError` for options that take the model itself.
    """
    if options.model is not None:
        raise LayerscopeError(
            "`states` replace a model: give one of the two, and the model's norm and head with `head`"
        )
    options.refuse(OF_MODELS, "needs a model that runs, and there are only states")
    measuring = replace(options.measuring, views=0)
    assert options.states is not None
    states = open_states(options.states, options.layers, measuring.pooling)
    columns = Columns(options.text_column, options.label_column)
    corpus = corpus_of(states, options.data, options.labels, columns)
    head = None if options.head is None else load(options.head, options.load)
    model = states_model(states, head, torch_device(options.load))
    vectors, notes = _vectors(model, measuring)
    notes = [*states.notes, *model.notes, *_lines_on(model), *notes]
    read = f"the states of {spans(states.layers, 'layer')} are read from {states.path}"
    model = replace(model, notes=(f"{read}: no model runs", *notes))
    corpus = draw(corpus, measuring.samples, measuring.seed)
    is_as_stored = options.data is None and options.labels is None
    if not is_as_stored or len(corpus) != len(states.names):
        model = _of_other_samples(model)
    return Job(model, corpus, measuring, vectors)


def _vectors(model: StatesModel, measuring: PassOptions) -> tuple[Vectors, list[str]]:
    """Return the vectors of a sample, and a line where their pooling is not known."""
    pooling = measuring.pooling
    if model.rank == 3:
        pairs = measuring.wants("pairs") or measuring.wants("path")
        return vectors_for(model, pooling, pairs), []
    if "pooling" in model.states.about:
        return Vectors((model.states.about["pooling"],)), []
    if pooling == "auto":
        line = "the states are pooled and assumed to be means: name another pooling with `pooling`"
        return Vectors(("mean",)), [line]
    vectors = Vectors(parse(pooling))
    if len(vectors.poolings) > 1:
        raise LayerscopeError(
            f"pooling is {pooling}, and the states were pooled in one way: name that"
        )
    return vectors, []


def _lines_on(model: StatesModel) -> list[str]:
    """Return a line on each way in which states are less than those of a whole model."""
    states, lines = model.states, list[str]()
    last, depth = states.layers[-1], states.about.get("depth")
    depth = depth or (model.lens and model.lens.stack.depth)
    if states.about.get("site") == "normed":
        lines.append("the states are from after the final norm, and are listed at the site raw")
    if not model.whole:
        end = f"of {depth}" if depth else "which may not be the model's last"
        end = f"layer {last} {end}" if depth else f"layer {last}, {end}"
        lines.append(f"the states end at {end}: findings on the last layer are about layer {last}")
    if len(states.layers) <= last:
        lines.append(
            "other layers are missing: saturation and steps from layer to layer use only these"
        )
    return lines


def _of_other_samples(model: StatesModel) -> StatesModel:
    """Return states without the fingerprint of what they were extracted from: samples or labels differ now."""
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

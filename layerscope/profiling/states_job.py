"""A job whose states another engine wrote: the part of a profile that needs no model.

The states take the place of the forwards; all that follows, from pooling to tables, is the same.
What needs the model itself, such as views of a sample or its head, is refused or left out, and a
note says so.
"""

from dataclasses import replace

from layerscope.core import LayerscopeError, spans
from layerscope.inputs import draw
from layerscope.inputs.columns import Columns
from layerscope.inputs.state_files import open_states
from layerscope.inputs.states import corpus_of
from layerscope.models import Vectors, vectors_for
from layerscope.models.placing import torch_device
from layerscope.models.pooling import parse
from layerscope.models.stored import StatesModel, states_model
from layerscope.profiling.options import PassOptions, ProfileOptions
from layerscope.profiling.plan import Job
from layerscope.runs.registry import Needs

OF_MODELS = (
    "model", "processor", "chunk", "repeat_tokens", "random_tokens", "prompt", "sublayers", "max_length", "part",
    "blocks", "norm", "keep_states",
)  # fmt: skip
"""Options that take a model to run."""


def of_states(options: ProfileOptions) -> Job:
    """Return the job of a profile of states.

    Raises `LayerscopeError` for options that take the model itself.
    """
    options.refuse(OF_MODELS, "needs a model that runs, and there are only states")
    measuring = replace(options.measuring, views=0)
    assert options.states is not None
    states = open_states(options.states, options.layers, measuring.pooling)
    columns = Columns(options.text_column, options.label_column)
    corpus = corpus_of(states, options.data, options.labels, columns)
    corpus = draw(corpus, measuring.samples, measuring.seed)
    is_as_stored = options.data is None and options.labels is None
    if not is_as_stored or len(corpus) != len(states.names):
        # the samples or labels are not those that the states were extracted from
        about = dict(states.about)
        about.pop("fingerprint", None)
        states = replace(states, about=about)
    model = states_model(states, torch_device(options.load))
    read = f"the states of {spans(states.layers, 'layer')} are read from {states.path}"
    notes = (f"{read}: no model runs", *states.notes, *model.notes, *_lines_on(model))
    model = replace(model, notes=notes)
    return Job(model, corpus, measuring, _vectors(model, measuring))


def _vectors(model: StatesModel, measuring: PassOptions) -> Vectors:
    """Return the vectors of a sample.

    Pooled ones are means where nothing says how they were pooled.
    """
    pooling = measuring.pooling
    if model.rank == 3:
        pairs = measuring.wants("pairs") or measuring.wants("path")
        return vectors_for(model, pooling, pairs)
    poolings = parse("mean" if pooling == "auto" else pooling)
    if "pooling" in model.states.about:
        poolings = (model.states.about["pooling"],)
    if len(poolings) > 1:
        raise LayerscopeError(
            f"pooling is {pooling}, and the states were pooled in one way: name that"
        )
    return Vectors(poolings)


def _lines_on(model: StatesModel) -> list[str]:
    """Return a line on each way in which states are less than those of a whole model."""
    states = model.states
    lines = list[str]()
    last = states.layers[-1]
    if states.about.get("site") == "normed":
        lines.append(
            "the states are from after the final norm, and are listed at the site raw"
        )
    if not model.whole:
        lines.append(
            f"the states end at layer {last}, which may not be the model's last: findings on the last layer are about "
            "this one"
        )
    if len(states.layers) <= last:
        lines.append(
            "other layers are missing: saturation and steps from layer to layer use only these"
        )
    return lines


def lack_of_states(needs: Needs, model: StatesModel) -> str | None:
    """Return why states do not give what a metric needs, None where they do."""
    if needs == "views":
        return "views of a sample need a model that runs"
    if needs == "tokens" and model.rank == 2:
        return "the states are pooled"
    if needs == "forward":
        return "it takes a model that runs"
    if needs == "lens":
        return "a head takes the model itself"
    return None

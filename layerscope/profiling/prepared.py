"""Make a model ready for the metrics that change how it runs: where attention weights and branches are.

What each of them needs beyond a forward, found by a small one before the pass:

    valley                  eager attention, and the modules that give its weights
    valley, ablate sinks    the MLP of each block
    causal_depth            the branches of each block, if they can be identified

What is missing is noted in the run; only a model without any MLP to ablate is an error. After the
pass attention is computed as it was before.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import islice

from layerscope.core.errors import LayerscopeError, spans
from layerscope.models.attention import eager_attention, find_attention
from layerscope.models.capture import evaluating
from layerscope.models.forward import Inputs
from layerscope.models.probe import PROBED, probe_sample
from layerscope.models.stored import StatesModel
from layerscope.models.sublayers.find import find_sublayers
from layerscope.models.sublayers.watch import Sublayers
from layerscope.profiling.plan import Job

EAGER = "attention is computed eagerly, so that `valley` can read its weights"


@contextmanager
def prepared(job: Job) -> Iterator[Job]:
    """Yield the job as `valley` and `causal_depth` need it; within, attention is eager where weights are read.

    Raises `LayerscopeError` where no text has two tokens.
    """
    model = job.model
    if not job.options.wants("forward") or not runs(job):
        yield job
        return
    _need_tokens(job)
    some = [*islice(job.corpus.samples, PROBED)]
    sample = probe_sample(model.encoder, some)
    inputs = model.encoder.batch([sample]).to(model.device)
    notes = [*model.notes]
    with ExitStack() as eager:
        if "valley" in job.options.metrics:
            if eager.enter_context(eager_attention(model.module)):
                notes.append(EAGER)
            with evaluating(model.module):
                taps = find_attention(model.module, model.stack, inputs)
            model = replace(model, attention=taps)
            notes += _without_weights(job, {tap.layer for tap in taps})
        inner = _inner(job, inputs)
        if inner is not model.sublayers:
            notes += inner.notes
        yield replace(job, model=replace(model, notes=tuple(notes)), inner=inner)


def runs(job: Job) -> bool:
    """Return whether there is a model that runs over tokens."""
    return job.model.rank == 3 and not isinstance(job.model, StatesModel)


def _inner(job: Job, inputs: Inputs) -> Sublayers:
    """Return the sub-layers, found here where they are not measured themselves; none where nobody needs them."""
    model = job.model
    options = job.options
    is_needed = "causal_depth" in options.metrics or options.ablate is not None
    if options.sublayers or not is_needed:
        return model.sublayers
    with evaluating(model.module):
        inner = find_sublayers(model.module, model.stack, inputs)
    if options.ablate is not None and "mlp" not in inner.sites:
        raise LayerscopeError(
            f"no MLP is found in the blocks of {model.name}, so no write can be removed: leave `ablate` out"
        )
    return inner


def _without_weights(job: Job, layers: set[int]) -> list[str]:
    """Return a line on the blocks that give no attention weights."""
    lacking = sorted({*range(1, job.model.depth + 1)} - layers)
    if not lacking:
        return []
    return [
        f"{spans(lacking, 'block')} of {job.model.name} give no attention weights (such as a state-space layer, or "
        "one with attention of its own): attention to the first token is not measured there"
    ]


def _need_tokens(job: Job) -> None:
    """Raise where all texts have one token: there is nothing to attend to, and nothing that follows."""
    model = job.model
    samples = job.corpus.samples
    if model.encoder.modality != "text":
        return
    some = model.encoder.lengths([samples[0]])
    if max(some) < 2 and max(model.encoder.lengths(samples)) < 2:
        raise LayerscopeError(
            f"the texts of {job.corpus.name} have one token each: valley and causal_depth compare a text's tokens"
        )

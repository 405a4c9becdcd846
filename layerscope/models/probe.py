"""Find a model's layers by a few small forwards of it, and see in them how it must be run.

One short sample runs through the model while every module is watched: that gives the blocks, the
final norm and the head. Then it runs again with one thing changed, and a change in the states says
what depends on it: a changed token, whether the model is causal; another sample beside it, whether
samples may share a batch; a longer one beside it, whether padding is harmless.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn

from layerscope.core import LayerscopeError
from layerscope.inputs.pairs import Ids
from layerscope.models.batch_probe import (
    ROUNDING,
    States,
    agree,
    states_of,
    tested_in_batches,
)
from layerscope.models.capture import evaluating
from layerscope.models.encode import Encoder, TextEncoder, encoder_for
from layerscope.models.forward import Inputs, setting
from layerscope.models.layered import LayeredModel
from layerscope.models.lens import find_lens, token_read
from layerscope.models.loaded import Loaded
from layerscope.models.modality import read_as
from layerscope.models.options import Override
from layerscope.models.pooling import find_projection
from layerscope.models.stack import (
    Stack,
    check_norm,
    choose,
    find_stacks,
    is_decoder,
    module_at,
    tokens_read,
)
from layerscope.models.sublayers.find import find_sublayers
from layerscope.models.weights import input_device

PROBED = 8
"""A model is probed with this many of the samples."""
PROBE_TOKENS = 24


def find_layers(
    loaded: Loaded,
    modality: str,
    samples: Sequence[Any],
    override: Override = Override(),
    *,
    max_length: int | None = None,
    prompt: str = "",
    sublayers: bool = False,
) -> LayeredModel:
    """Find blocks, final norm and head of a model by a probe on a few samples, and test how it may be batched.

    With `sublayers` the model's runs visit what comes inside its blocks too; one in which nothing
    is found is refused.
    """
    module = loaded.module
    if setting(module, "mask_ratio"):
        raise LayerscopeError(
            f"{loaded.name} masks its input at random: load its encoder alone, such as ViTModel of a ViTMAE"
        )
    samples = list(islice(samples, PROBED))
    modality = read_as(modality, samples[0], module)
    encoder = encoder_for(
        modality,
        loaded.processor_for(modality),
        module,
        max_length=max_length or loaded.max_length,
        prompt=prompt or loaded.prompt,
        lack=loaded.lack,
        chat=loaded.chat,
    )
    device = input_device(module)
    with evaluating(module):
        sample = probe_sample(encoder, samples)
        inputs = encoder.batch([sample]).to(device)
        stack, parts = _find_stack(module, inputs, override)
        notes = (*loaded.notes, *stack.notes)
        model = LayeredModel(loaded, encoder, stack, parts, device, notes)
        states = states_of(model, inputs)
        last = states[f"raw.{stack.depth}"]
        _check_one(model, last, inputs)
        tokens = last.shape[1] if last.ndim == 3 else 1
        notes = (*model.notes, *_broken(model, states))
        model = replace(model, rank=last.ndim, tokens=tokens, notes=notes)
        inputs = replace(inputs, mask=model.mask(inputs, last))
        model = _with_head(model, modality, inputs, states)
        model = replace(
            model,
            causal=_is_causal(model, sample),
            pooling=_auto_pooling(model, inputs, last, samples),
        )
        model = tested_in_batches(model, sample, states)
        if sublayers:
            return _with_sublayers(model, inputs)
        return model


def probe_sample(encoder: Encoder, samples: Sequence[Any]) -> Any:
    """Return the sample a model is probed with: the longest, or of texts some tokens."""
    if isinstance(encoder, TextEncoder):
        # two tokens at least: among like ones attention, causal or not, and every head would look
        # alike
        ids = [0, 1]
        for row in encoder.ids(samples):
            if len(set(row)) > 1:
                ids = row
                break
        length = min(PROBE_TOKENS, encoder.max_length)
        repeated = ids * PROBE_TOKENS
        return Ids(tuple(repeated[:length]))
    lengths = encoder.lengths(samples)
    if max(lengths) == 0:
        raise LayerscopeError(
            "the sounds are too short for this model: give longer ones"
        )
    return samples[lengths.index(max(lengths))]


def _find_stack(
    module: nn.Module, inputs: Inputs, override: Override
) -> tuple[Stack, tuple[str, ...]]:
    """Return the chosen stack of blocks, with the norm that the user names, and the parts there are."""
    if override.blocks is not None:
        module_at(module, override.blocks, "blocks")
    stacks = find_stacks(module, inputs, override.blocks)
    stack = choose(stacks, override.part)
    if override.norm == "none":
        stack = replace(stack, norm=None)
    elif override.norm is not None:
        check_norm(module, stack, override.norm)
        stack = replace(stack, norm=override.norm)
    return stack, tuple(each.part for each in stacks)


def _broken(model: LayeredModel, states: States) -> list[str]:
    """Return a note on the first layer that is not finite; raise where the final norm alone breaks it."""
    for key, state in states.items():
        if bool(torch.isfinite(state).all()):
            continue
        site, _, layer = key.partition(".")
        if site == "raw":
            return [f"layer {layer} gives NaN or infinity for the sample of the probe"]
        raise LayerscopeError(
            f"the final norm ({model.stack.norm}) gives NaN or infinity for the sample of the probe: check its "
            "weights, or leave it out with `norm='none'`"
        )
    return []


def _check_one(model: LayeredModel, last: Tensor, inputs: Inputs) -> None:
    """Raise where a sample's states are not one row of states, or a text's not one for each token."""
    tokens = tokens_read(model.module, model.stack, inputs) or 0
    if last.shape[0] != 1 or (last.ndim == 3 and last.shape[1] < tokens):
        raise LayerscopeError(
            f"the blocks of the {model.stack.part} of {model.name} give {list(last.shape)} for one sample of "
            f"{tokens} tokens: its layers have no state of one sample, or of one token"
        )


def _with_head(
    model: LayeredModel, modality: str, inputs: Inputs, states: States
) -> LayeredModel:
    """Return the model with its lens, or of two towers with the projection into the shared space."""
    depth = model.depth
    module = model.module
    last = states[f"raw.{depth}"]
    final = states[f"{model.final}.{depth}"]
    lens, note = find_lens(module, model.stack, inputs, last, final)
    if note:
        model = replace(model, notes=(*model.notes, note))
    if lens is not None and lens.classes == 1:
        return replace(model, scorer=lens)
    if lens is not None or model.rank != 3:
        return replace(model, lens=lens)
    return replace(
        model, projection=find_projection(module, model.stack, modality, inputs, last)
    )


def _is_causal(model: LayeredModel, sample: Any) -> bool:
    """Return whether a change of one token leaves the states before it alone, but for rounding.

    Experts round by their load.
    """
    inputs = model.encoder.batch([sample])
    name = "input_ids"
    if is_decoder(model.module, model.stack):
        name = "decoder_input_ids"
    ids = inputs.named.get(name)
    if ids is None:
        return False
    if name == "decoder_input_ids" and ids.shape[1] < 2:
        # the decoder of a sound reads the token that starts a text
        ids = torch.arange(4)[None]
    middle = ids.shape[1] // 2
    changed = ids.clone()
    others = ids[ids != ids[0, middle]]
    if not len(others):
        return False
    changed[0, middle] = others[0]
    before = _with_ids(model, inputs, name, ids)
    after = _with_ids(model, inputs, name, changed)
    return agree(before, after, middle, ROUNDING)


def _with_ids(model: LayeredModel, inputs: Inputs, name: str, ids: Tensor) -> States:
    """Return the states of a batch with other token ids."""
    named = {**inputs.named, name: ids}
    return states_of(model, replace(inputs, named=named))


def _auto_pooling(
    model: LayeredModel, inputs: Inputs, last: Tensor, samples: Sequence[Any]
) -> tuple[str, ...]:
    """Return what `auto` means: a SentenceTransformer's own; the token a classifier or a tower reads; else the mean."""
    if model.loaded.pooling:
        return model.loaded.pooling
    if model.head is not None and model.head.kind == "pooled":
        return (token_read(model.head.sample_logits, last, inputs),)
    if model.projection is None:
        return ("mean",)
    # seen on a whole text, as a tower may read the token that ends it
    lengths = model.encoder.lengths(samples)
    longest = samples[lengths.index(max(lengths))]
    inputs = model.encoder.batch([longest]).to(model.device)
    last = states_of(model, inputs)[f"raw.{model.depth}"]
    return (token_read(model.projection.vectors, last, inputs),)


def _with_sublayers(model: LayeredModel, inputs: Inputs) -> LayeredModel:
    """Return the model with what is seen inside its blocks."""
    sublayers = find_sublayers(model.module, model.stack, inputs)
    if not sublayers.taps:
        raise LayerscopeError(
            f"no sub-layers were found in the blocks of {model.name}: leave `sublayers` out"
        )
    notes = *model.notes, *sublayers.notes
    return replace(model, sublayers=sublayers, notes=notes)

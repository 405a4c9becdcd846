"""Finds the head of a classifier, and proves it on a batch whose rows leave at every turn."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn

from layerscope.core import LayerscopeError, first_line
from layerscope.early_exit.batch_axes import Layout, find_layout, front_of
from layerscope.early_exit.batch_compaction import ExitForward
from layerscope.early_exit.classifier_head import ClassifierHead
from layerscope.models import (
    Inputs,
    LayeredModel,
    Lens,
    Stack,
    accepts,
    evaluating,
    logits_of,
    made_up_samples,
    setting,
)
from layerscope.models.batch_probe import beginning
from layerscope.models.forward import FAILURES, forward
from layerscope.models.probe import probe_sample
from layerscope.models.trace import same, trace
from layerscope.truncation.expected import states_at


@torch.inference_mode()
def find_head(model: LayeredModel) -> ClassifierHead:
    """Return what reads the rows of a batch at every exit; raises `LayerscopeError` where rows cannot leave batches.

    Of four samples each leaves at another layer, the longest first; each must have the logits it
    has alone. Where that fails with the shortcuts (sequences trimmed, steps called one by one), it
    is tried without.
    """
    lens = _lens(model)
    module = model.module
    stack = model.stack
    long = probe_sample(model.encoder, made_up_samples(model.loaded)[1])
    short = beginning(long, 0.5)
    shorter = beginning(long, 0.25)
    layout = _layout(model, [long, short, shorter])
    samples = [long, short, shorter, short] if model.padding else [long] * 4
    depth = stack.depth
    layers = [1, max(1, depth - 1), depth, max(1, depth // 2)]
    exits = sorted({*layers} - {depth})
    inputs = _batch(model, samples)
    why = "their logits change"

    def decide(layer: int, _: Tensor, rows: Tensor) -> Tensor:
        return torch.tensor(layers)[rows.cpu()] == layer

    with evaluating(module):
        pairs = zip(samples, layers, strict=True)
        alone = torch.stack([_alone(model, lens, *pair) for pair in pairs])
        steps = find_steps(module, stack, inputs)
        # the quickest first
        trimming = sorted({layout.trims, False}, reverse=True)
        for trims, called in product(trimming, dict.fromkeys((steps, ()))):
            head = ClassifierHead(lens, replace(layout, trims=trims), called)
            try:
                leaving = ExitForward(model, head, inputs, exits, decide)
                logits = leaving.run(partial(forward, module, inputs)).logits
            except LayerscopeError:
                raise
            # code that looks at the batch again fails in its own way
            except Exception as error:
                why = f"{type(error).__name__}: {first_line(error, 150)}"
                continue
            # as far as the precision of the weights can say
            tolerance = 5e-2 if alone.dtype.itemsize < 4 else 1e-4
            size = alone.float().norm(dim=-1).clamp_min(1e-3)
            difference = (logits - alone).norm(dim=-1)
            if bool((difference <= tolerance * size).all()):
                return head
    raise LayerscopeError(f"rows cannot leave the batches of {model.name} ({why})")


def _batch(model: LayeredModel, samples: Sequence[Any]) -> Inputs:
    """Return samples as one batch on the model's device."""
    return model.encoder.batch(samples).to(model.device)


def _alone(model: LayeredModel, lens: Lens, sample: Any, layer: int) -> Tensor:
    """Return the logits of one sample at a layer, in the precision of its states."""
    single = _batch(model, [sample])
    state = states_at(model.module, model.stack, single, layer)["raw"]
    return lens.sample_logits(state, single)[0].to(state.dtype)


def _layout(model: LayeredModel, samples: Sequence[Any]) -> Layout:
    """Return the layout of batches, found with two of three samples, with all, and with the two shorter ones."""
    subsets = samples[:2], samples, samples[1:]
    batches = [_with_positions(model.module, _batch(model, each)) for each in subsets]
    try:
        return find_layout(model, *batches)
    except LayerscopeError:
        raise
    except FAILURES as error:
        raise LayerscopeError(
            f"{model.name} does not run on samples of several lengths ({first_line(error, 150)})"
        ) from error


def _with_positions(module: nn.Module, inputs: Inputs) -> Inputs:
    """Return a batch with its positions, as a caller may give them: what follows is then each row's own."""
    ids = inputs.named.get("input_ids")
    if ids is None or not accepts(module, "position_ids"):
        return inputs
    positions = torch.arange(ids.shape[1], device=ids.device)
    named = {**inputs.named, "position_ids": positions.expand(ids.shape)}
    return replace(inputs, named=named)


def find_steps(
    module: nn.Module, stack: Stack, inputs: Inputs
) -> tuple[tuple[str, bool], ...]:
    """Return the modules, one reading what the other gives, from the last block's states to the logits; else none."""
    beside = set(front_of(module, stack.blocks))
    calls = trace(module, "", inputs)
    last = max(i for i, call in enumerate(calls) if call.path == stack.blocks[-1])
    value = calls[last].output
    steps = []
    for call in calls[last + 1 :]:
        if call.path not in beside:
            continue
        first = not same(call.input, value)
        if first and not (value.ndim == 3 and same(call.input, value[:, 0])):
            return ()
        steps.append((call.path, first))
        value = call.output
    logits = logits_of(forward(module, inputs))
    if logits is not None and same(value, logits):
        return tuple(steps)
    return ()


def _lens(model: LayeredModel) -> Lens:
    """Return the lens of a classifier that runs in batches; raises `LayerscopeError` for any other model."""
    name = model.name
    lens = model.lens
    problem = setting(model.module, "problem_type")
    if lens is None:
        for note in model.notes:
            if "NaN" in note:
                raise LayerscopeError(
                    f"{name} cannot leave early: {note.removesuffix(': no lens')}; check its weights"
                )
        raise LayerscopeError(
            f"{name} has no head of classes over its {model.stack.part}: give a classifier"
        )
    if lens.kind == "tokens":
        raise LayerscopeError(
            f"{name} predicts tokens: give a model with one row of classes for each sample"
        )
    if problem in ("regression", "multi_label_classification"):
        raise LayerscopeError(
            f"{name} is made for {problem}: exits need classes of which one is right"
        )
    if lens.alone:
        raise LayerscopeError(
            f"{name} takes one sample at a time: set config.pad_token_id for batches"
        )
    return lens

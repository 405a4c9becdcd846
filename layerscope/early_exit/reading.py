"""How exits of a classifier are read: its layout and its tail, proved on a batch whose rows leave at every turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn

from layerscope.core.errors import LayerscopeError
from layerscope.early_exit.layout import Layout, find_layout
from layerscope.early_exit.leaving import run
from layerscope.early_exit.tail import Step, Tail, find_steps
from layerscope.models import LayeredModel
from layerscope.models.capture import evaluating
from layerscope.models.forward import FAILURES, Inputs, accepts, forward
from layerscope.models.inspection import made_up_samples
from layerscope.models.lens import Lens
from layerscope.models.probe import beginning, probe_sample


@torch.inference_mode()
def find_tail(model: LayeredModel) -> Tail:
    """Return what reads the rows of a batch at every exit.

    Of four samples each leaves at another layer, the longest first; each must have the logits it has alone, with the
    whole of the model's code before and after its blocks. Where that fails with the shortcuts (sequences trimmed, the
    modules after the blocks called one by one, those before them skipped), it is tried without.

    Raises:
        LayerscopeError: for a model without a head of classes, and where rows cannot leave its batches.

    """
    lens = check_head(model)
    if not model.batching:
        raise LayerscopeError(f"batch-mates change the states of {model.loaded.name}: no row can leave its batches")
    if lens.alone:
        raise LayerscopeError(f"{model.loaded.name} takes one sample at a time: set config.pad_token_id for batches")
    long, short, shorter = samples = _samples(model)
    batches = [_placed(model.module, _batch(model, some)) for some in ([long, short], samples, [short, shorter])]
    try:
        layout = find_layout(model, *batches)
    except FAILURES as error:
        raise _not_in_batches(model, error) from error
    samples = [*samples, short] if model.padding else [long] * 4
    depth = model.stack.depth
    layers = [1, max(1, depth - 1), depth, max(1, depth // 2)]
    with evaluating(model.module):
        alone = [_batch(model, [sample]) for sample in samples]
        wanted = [_alone(model, lens, inputs, layer) for inputs, layer in zip(alone, layers, strict=True)]
        batch, why = _batch(model, samples), "their logits change"
        steps = find_steps(model.module, model.stack, batch)
        for trims, tail in product([True, False] if layout.trims else [False], _tails(lens, layout, steps)):
            candidate = replace(tail, layout=replace(layout, trims=trims))
            try:
                found = _leaving(model, candidate, batch, layers)
            except LayerscopeError:
                raise
            except Exception as error:  # code that looks at the batch again fails in its own way
                why = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:150]}"
                continue
            if all(map(_same, found, wanted)):
                return candidate
    raise LayerscopeError(f"rows cannot leave the batches of {model.loaded.name} ({why})")


def _not_in_batches(model: LayeredModel, error: Exception) -> LayerscopeError:
    if isinstance(error, LayerscopeError):
        return error
    line = (str(error).splitlines() or [type(error).__name__])[0][:150]
    return LayerscopeError(f"{model.loaded.name} does not run on a batch of samples of several lengths ({line})")


def _tails(lens: Lens, layout: Layout, steps: tuple[Step, ...]) -> list[Tail]:
    """Return the ways to read an exit, the quickest first."""
    quickest = [Tail(lens, layout, False, steps)] if steps else []
    return [*quickest, Tail(lens, layout, True), Tail(lens, layout, False)]


def _same(one: Tensor, other: Tensor) -> bool:
    """Return whether a row's logits are the same, as far as the precision of the weights tells."""
    half = other.dtype.itemsize < 4
    return bool((one - other).norm() <= (5e-2 if half else 1e-4) * other.float().norm().clamp_min(1e-3))


def check_head(model: LayeredModel) -> Lens:
    """Return the lens of a classifier; raises `LayerscopeError` for a model that is none."""
    name, config = model.loaded.name, getattr(model.module, "config", None)
    broken = next((note for note in model.notes if "NaN" in note), None)
    if model.lens is None and broken is not None:
        raise LayerscopeError(f"{name} cannot leave early: {broken.removesuffix(': no lens')}; look at its weights")
    if model.lens is None:
        raise LayerscopeError(f"{name} has no head of classes over its {model.stack.part}: give a classifier")
    if model.lens.kind == "tokens":
        raise LayerscopeError(f"{name} predicts tokens: give a model with one row of classes for each sample")
    problem = getattr(config, "problem_type", None)
    if problem in ("regression", "multi_label_classification"):
        raise LayerscopeError(f"{name} is made for {problem}: exits need classes of which one is right")
    return model.lens


def _samples(model: LayeredModel) -> list[Any]:
    """Return three samples, the longest first, of different lengths where samples have any."""
    _, made_up = made_up_samples(model.loaded)
    long = probe_sample(model.encoder, made_up)
    return [long, beginning(long, 0.5), beginning(long, 0.25)]


def _batch(model: LayeredModel, samples: Sequence[Any]) -> Inputs:
    return model.encoder.batch(samples).to(model.device)


def _placed(module: nn.Module, inputs: Inputs) -> Inputs:
    """Return a batch that says where its tokens stand, as a caller may: what follows is then each row's own."""
    ids = inputs.named.get("input_ids")
    if ids is None or not accepts(module, "position_ids"):
        return inputs
    places = torch.arange(ids.shape[1], device=ids.device).expand(ids.shape)
    return replace(inputs, named={**inputs.named, "position_ids": places})


def _alone(model: LayeredModel, lens: Lens, inputs: Inputs, layer: int) -> Tensor:
    states: list[Tensor] = []

    def keep(at: int, site: str, tokens: Tensor) -> None:
        if at == layer and site == "raw":
            states.append(tokens.clone())

    model.run(inputs, keep, until=layer)
    return lens.sample_logits(states[0], inputs)[0].to(states[0].dtype)


def _leaving(model: LayeredModel, tail: Tail, inputs: Inputs, layers: Sequence[int]) -> Tensor:
    """Return the logits of a batch whose rows leave at these layers."""
    wanted = torch.tensor(layers)
    exits = sorted(set(layers) - {model.stack.depth})
    outcome = run(
        model,
        tail,
        lambda: forward(model.module, inputs),
        inputs,
        exits,
        lambda layer, _, rows: wanted[rows.cpu()] == layer,
    )
    return outcome.logits.float()

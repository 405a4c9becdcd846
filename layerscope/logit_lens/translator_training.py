"""Translators trained on a text, from the start or from where a training was stopped."""

import math
import time
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file
from torch import nn

from layerscope.core import LayerscopeError, Reporter, aside, own_folder
from layerscope.core.folders import writing
from layerscope.core.saved import write_facts
from layerscope.inputs import Corpus, open_corpus, pack
from layerscope.logit_lens.options import LensOptions
from layerscope.logit_lens.translators import (
    ABOUT,
    KIND,
    STEP,
    WEIGHTS,
    Translators,
    about_translators,
    divergence,
    layer_states,
    open_translators,
    predictions_of,
    read_weights,
    refuse_other,
    targets_by_layer,
)
from layerscope.models import LayeredModel
from layerscope.models.capture import evaluating
from layerscope.models.encode import TextEncoder

LEARNING_RATE, MOMENTUM, MAX_GRADIENT_NORM = 1.0, 0.9, 1.0
"""Of gradient descent, as in the paper: behind a norm, gradients shrink as states grow, so that one rate fits models of
any scale. The rate falls to 0 linearly; each layer's gradient is cut at the norm."""
LEAST_STEP_TOKENS = 1024
"""Tokens of a training step, at least."""
SECONDS_BETWEEN_CHECKPOINTS = 60.0


def translators_for(
    model: LayeredModel, options: LensOptions, reporter: Reporter
) -> tuple[Translators | None, list[str]]:
    """Return the translators that `lens` reads samples through, trained if they are to be, and notes."""
    folder = options.tuned
    if folder is None:
        return None, []
    if model.lens is None or model.lens.kind == "pooled":
        raise LayerscopeError(
            f"`tuned` needs a model that predicts tokens, and {model.name} classifies samples"
        )
    notes = []
    if options.train is not None:
        with evaluating(model.module):
            note = _trained(model, folder, options.train, options.steps, reporter)
        notes.append(note)
    return open_translators(folder, model), notes


def _trained(
    model: LayeredModel, folder: Path, text: Any, steps: int, reporter: Reporter
) -> str:
    """Train translators on a text, as far as their folder has none, and return a note."""
    encoder = model.encoder
    if not isinstance(encoder, TextEncoder) or encoder.tokenizer is None:
        raise LayerscopeError(
            "translators are trained on text: give a model that reads text, with its tokenizer"
        )
    corpus = open_corpus(text)
    windows = pack(corpus, encoder.tokenizer, encoder.max_length)
    size = len(windows.samples[0].ids)
    total = len(windows) * size
    if total < LEAST_STEP_TOKENS:
        raise LayerscopeError(
            f"{corpus.name} has {total:,} tokens to train on: give {LEAST_STEP_TOKENS:,} or more"
        )
    own_folder(folder, KIND, ABOUT, "tuned")
    job = {"text": corpus.fingerprint(), "window": size, "steps": steps}
    job = about_translators(model) | job
    if (folder / WEIGHTS).is_file():
        refuse_other(folder, job)
    else:
        with writing(folder):
            write_facts(folder / ABOUT, KIND, {"model": model.name, **job})
    windows_per_step = math.ceil(LEAST_STEP_TOKENS / size)
    _train(model, folder, windows, steps, windows_per_step, reporter)
    passes = steps * windows_per_step / len(windows)
    return (
        f"translators trained on {corpus.name}: {steps:,} steps of {windows_per_step * size:,} tokens, "
        f"{passes:.1f} passes over the text"
    )


def _train(
    model: LayeredModel,
    folder: Path,
    windows: Corpus,
    steps: int,
    windows_per_step: int,
    reporter: Reporter,
) -> None:
    """Train from the start or the last checkpoint, in float32 whatever the model's dtype."""
    translators = Translators(model.depth, model.width).to(model.device)
    descent = torch.optim.SGD(
        translators.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM, nesterov=True
    )
    begun = 0
    if (folder / WEIGHTS).is_file():
        tensors = read_weights(folder)
        if STEP not in tensors:  # trained to the end: only a checkpoint holds a step
            return
        begun = int(tensors[STEP])
        for name, weight in translators.named_parameters():
            weight.data.copy_(tensors[name])
            momentum = tensors[f"momentum.{name}"].to(weight.device)
            descent.state[weight]["momentum_buffer"] = momentum

    def save(done: int) -> None:
        tensors = translators.state_dict()
        if done < steps:
            for name, weight in translators.named_parameters():
                momentum = descent.state[weight]["momentum_buffer"]
                tensors[f"momentum.{name}"] = momentum
            tensors[STEP] = torch.tensor(done)
        aside(folder / WEIGHTS, lambda part: save_file(tensors, part))

    last = time.monotonic()
    with reporter.bar("translators", steps, "steps") as advance:
        advance(begun)
        for step in range(begun, steps):
            rows = _step_windows(windows, step, windows_per_step)
            loss = _backward(model, translators, rows, step)
            for layer in translators:
                nn.utils.clip_grad_norm_(layer.parameters(), MAX_GRADIENT_NORM)
            descent.param_groups[0]["lr"] = LEARNING_RATE * (1 - step / steps)
            descent.step()
            is_due = time.monotonic() - last >= SECONDS_BETWEEN_CHECKPOINTS
            if is_due or step + 1 == steps:
                save(step + 1)
                last = time.monotonic()
            advance(1, f"KL {loss:.3f}")


def _step_windows(windows: Corpus, step: int, per_step: int) -> list[Sequence[int]]:
    """Return the tokens of a step's windows: drawn without replacement, reshuffled with the epoch as seed.

    They depend on the number of the step alone, so that a resumed training reads what it would have
    read.
    """
    rows = []
    for number in range(step * per_step, (step + 1) * per_step):
        epoch, position = divmod(number, len(windows))
        drawn = int(_order(epoch, len(windows))[position])
        rows.append(windows.samples[drawn].ids)
    return rows


@lru_cache(maxsize=1)
def _order(epoch: int, count: int) -> NDArray[np.int64]:
    """Return the order of the windows in an epoch."""
    return np.random.default_rng(epoch).permutation(count)


@torch.enable_grad()
def _backward(
    model: LayeredModel,
    translators: Translators,
    rows: Sequence[Sequence[int]],
    step: int,
) -> float:
    """Set the gradients of the mean divergence over the tokens of some windows; return it, averaged over the layers."""
    assert isinstance(model.encoder, TextEncoder)
    translators.zero_grad()
    # alone: a batch's others cannot matter
    batches = [model.encoder.batch_ids([row]).to(model.device) for row in rows]
    by_window = [layer_states(model, batch)[1] for batch in batches]
    by_layer = [torch.cat(states, 1)[0] for states in zip(*by_window, strict=True)]
    sums = torch.zeros(len(translators), device=model.device)
    for k, target, states in targets_by_layer(model, batches[0], by_layer):
        predicted = predictions_of(model, batches[0], translators.translated(k, states))
        loss = divergence(target, predicted).sum() / len(by_layer[0])
        if loss.requires_grad:
            torch.autograd.backward(loss, inputs=[*translators[k].parameters()])
        sums[k] += loss.detach()
    if not bool(torch.isfinite(sums).all()):
        k = int(torch.isfinite(sums).int().argmin())
        raise LayerscopeError(
            f"layer {k} gives NaN or infinity in step {step + 1} of training: try `dtype='float32'`"
        )
    gradients = (weight.grad for weight in translators.parameters())
    if step == 0 and not any(each is not None and each.any() for each in gradients):
        raise LayerscopeError(
            f"{model.name} passes no gradients, as with quantised weights: give the unquantised model"
        )
    return float(sums.mean())

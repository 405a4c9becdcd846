"""Translators of the tuned lens: kept in a folder, trained to the model's own predictions, and measured against them.

The head of a model was trained to read the last layer. Earlier layers hold the same things turned
and shifted, and read as they are (the plain lens) they give less than they know. A translator is an
affine map of a layer's states, after which the head reads them:

    plain    h_3                →  head  →  prediction of layer 3
    tuned    h_3 + W_3 h_3 + b_3  →  head  →  prediction of layer 3

W and b start at 0 and are trained, layer by layer, so that the prediction comes near the model's
own: the divergence from what the last layer predicts falls. The model itself is never changed.

A folder holds `translators.json` (of which model, trained on what) and `translators.safetensors`
with `K.weight` [D, D] and `K.bias` [D] of each layer K before the last (in training with the `step`
and each one's momentum).
"""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector

from layerscope.core import LayerscopeError, Reporter, aside, first_line, own_folder
from layerscope.core.folders import writing
from layerscope.core.saved import read_facts, write_facts
from layerscope.inputs import Corpus, open_corpus, pack
from layerscope.logit_lens.options import TuningOptions
from layerscope.models import LayeredModel
from layerscope.models.capture import evaluating
from layerscope.models.encode import TextEncoder
from layerscope.models.forward import Inputs
from layerscope.models.identity import weights_fingerprint
from layerscope.models.lens import CHUNK
from layerscope.models.stack import Stack

KIND, STEP = "translators", "step"
ABOUT, WEIGHTS = "translators.json", "translators.safetensors"
RETRAIN_HINT = "train them again in a new folder"
LEAST_STEP_TOKENS = 1024
"""Tokens of a training step, at least."""
LEARNING_RATE, MOMENTUM, MAX_GRADIENT_NORM = 1.0, 0.9, 1.0
"""Of gradient descent, as in the paper: behind a norm, gradients shrink as states grow, so that one rate fits models of
any scale. The rate falls to 0 linearly; each layer's gradient is cut at the norm."""
SECONDS_BETWEEN_CHECKPOINTS = 60.0
Sums = NDArray[np.float64]


class Translators(nn.ModuleList):
    """An affine map for each layer before the last: its states h become h + W h + b.

    Source: Belrose et al. 2023, Eliciting Latent Predictions from Transformers with the Tuned Lens,
    section 3.

    >>> Translators(depth=2, width=3).translated(0, torch.ones(1, 3)).tolist()  # not trained yet
    [[1.0, 1.0, 1.0]]
    """

    def __init__(self, depth: int, width: int) -> None:
        """Make those that leave every state as it is."""
        super().__init__(nn.Linear(width, width) for _ in range(depth))
        for parameter in self.parameters():
            nn.init.zeros_(parameter)

    def translated(self, layer: int, states: Tensor) -> Tensor:
        """Return the states [..., D] of a layer as the head is to read them, in their dtype; the last layer's as is."""
        if layer == len(self):
            return states
        exact = states.float()
        return torch.add(exact, self[layer](exact)).to(states.dtype)


def translators_for(
    model: LayeredModel, options: TuningOptions, reporter: Reporter
) -> tuple[Translators | None, list[str]]:
    """Return the translators that `lens` reads samples through, trained if they are to be, and notes."""
    folder = options.tuned
    if folder is None:
        return None, []
    if model.lens is None or model.lens.kind == "pooled":
        raise LayerscopeError(
            f"`tuned` needs a model that predicts tokens, and {model.loaded.name} classifies samples"
        )
    notes = []
    if options.train is not None:
        with evaluating(model.module):
            note = _trained(model, folder, options.train, options.steps, reporter)
        notes = [note]
    return open_translators(folder, model.module, model.stack), notes


def open_translators(folder: Path, module: nn.Module, stack: Stack) -> Translators:
    """Return the translators in a folder, in float32 on the model's device.

    Raises `LayerscopeError` where there are none, and for those of another model.
    """
    facts, tensors = _read(folder)
    _refuse_other(folder, facts, _about(module, stack))
    if STEP in tensors:
        raise LayerscopeError(
            f"{str(folder)!r} holds a training that was stopped: give `train` again to resume it"
        )
    translators = Translators(stack.depth, stack.width)
    values = parameters_to_vector(tensors.values())
    size = sum(weight.numel() for weight in translators.parameters())
    if len(values) != size or not bool(torch.isfinite(values).all()):
        layers = f"layers 0 to {len(translators) - 1} of width {stack.width}"
        raise LayerscopeError(
            f"{str(folder)!r} does not hold finite translators for {layers}: {RETRAIN_HINT}"
        )
    translators.load_state_dict(tensors)
    return translators.to(next(module.parameters()).device)


def _read(folder: Path) -> tuple[Mapping[str, Any], dict[str, Tensor]]:
    """Return what translators are of, and their tensors by name."""
    if not folder.is_dir():
        raise LayerscopeError(
            f"{str(folder)!r} does not exist: train translators there with the option `train`"
        )
    try:
        tensors = load_file(folder / WEIGHTS)
    except (SafetensorError, OSError) as error:
        raise LayerscopeError(
            f"{str(folder)!r} holds no complete translators ({first_line(error)}): train some with `train`"
        ) from error
    return read_facts(folder / ABOUT, KIND, RETRAIN_HINT), tensors


def _about(module: nn.Module, stack: Stack) -> dict[str, Any]:
    """Return what translators must have been trained for to fit a model, whatever the dtype that it is loaded in."""
    facts = {name: getattr(stack, name) for name in ("part", "depth", "width")}
    return facts | {"weights": weights_fingerprint(module, torch.bfloat16)}


def _refuse_other(
    folder: Path, there: Mapping[str, Any], here: Mapping[str, Any]
) -> None:
    """Raise for translators of another model or training: the first fact that differs is named."""
    for name, value in here.items():
        if there.get(name) != value:
            old, new = str(there.get(name))[:12], str(value)[:12]
            mend = "give a folder of this model's, or a new one to train them in"
            raise LayerscopeError(
                f"{str(folder)!r} holds other translators ({name}: {old} there, {new} here): {mend}"
            )


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
    job = _about(model.module, model.stack) | job
    if (folder / WEIGHTS).is_file():
        _refuse_other(folder, read_facts(folder / ABOUT, KIND, RETRAIN_HINT), job)
    else:
        with writing(folder):
            write_facts(folder / ABOUT, KIND, {"model": model.loaded.name, **job})
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
    translators = Translators(model.stack.depth, model.stack.width).to(model.device)
    descent = torch.optim.SGD(
        translators.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM, nesterov=True
    )
    begun = 0
    if (folder / WEIGHTS).is_file():
        _, tensors = _read(folder)
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
    for k, target, states in _layers(model, batches[0], by_layer):
        predicted = _predicted(model, batches[0], translators.translated(k, states))
        loss = _divergence(target, predicted).sum() / len(by_layer[0])
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
            f"{model.loaded.name} passes no gradients, as with quantised weights: give the unquantised model"
        )
    return float(sums.mean())


def layer_states(model: LayeredModel, inputs: Inputs) -> tuple[Inputs, list[Tensor]]:
    """Return the raw states [1, T, D] of layers 0 … L for one sample, and its batch with the mask of its states.

    They are copies on the model's device: a block may change its input in place.
    """
    states = []

    def keep(_: int, site: str, tokens: Tensor) -> None:
        if site == "raw":  # a model spread over several devices gives them on each
            states.append(tokens.to(model.device, copy=True))

    model.run(inputs, keep)
    return replace(inputs, mask=model.mask(inputs, states[0])), states


def _layers(
    model: LayeredModel, inputs: Inputs, states: Sequence[Tensor]
) -> Iterator[tuple[int, Tensor, Tensor]]:
    """Yield each layer before the last, what the last one predicts, and its states.

    States come some rows at a time, as many as have logits that fit into a chunk.
    """
    assert model.lens is not None
    size = max(1, CHUNK // model.lens.classes)
    for rows in zip(*(torch.split(state, size) for state in states), strict=True):
        target = _predicted(model, inputs, rows[-1])
        for layer, read in enumerate(rows[:-1]):
            yield layer, target, read


def _predicted(model: LayeredModel, inputs: Inputs, states: Tensor) -> Tensor:
    """Return the log-probabilities [n, K] by the model's own head for token states [n, D]."""
    assert model.lens is not None
    return next(model.lens.token_logits(states, inputs)).log_softmax(-1)


def _divergence(target: Tensor, predicted: Tensor) -> Tensor:
    """Return how far each row's predictions are from the target's: Kullback-Leibler, in nats.

    Both are log-probabilities `[n, K]`.

    >>> half, sure = torch.tensor([[0.5, 0.5]]).log(), torch.tensor([[0.75, 0.25]]).log()
    >>> _divergence(half, half).item(), round(_divergence(half, sure).item(), 3)
    (0.0, 0.144)
    """
    return (target.exp() * (target - predicted)).sum(-1)


@torch.inference_mode()
def divergences(
    model: LayeredModel,
    translators: Translators,
    inputs: Inputs,
    states: Sequence[Tensor],
) -> Sums:
    """Return sums [L, 3] over token states [n, D] of layers 0 … L, for each layer before the last.

    They are the divergence from the last layer's predictions by the plain and the tuned lens, and
    the number of positions.
    """
    sums = np.zeros((len(translators), 3))
    for k, target, plain in _layers(model, inputs, states):
        for column, read in enumerate((plain, translators.translated(k, plain))):
            apart = _divergence(target, _predicted(model, inputs, read))
            sums[k, column] += float(apart.double().sum())
    sums[:, 2] = len(states[0])
    return sums


def fidelity(sums: Sequence[Sums]) -> pd.DataFrame | None:
    """Return means over the positions of all samples by layer; None without samples.

    >>> fidelity([np.array([[2.0, 1.0, 2]]), np.array([[4.0, 1.0, 2]])])
       layer  kl_plain  kl_tuned  n
    0      0       1.5       0.5  4
    """
    if not sums:
        return None
    plain, tuned, n = np.sum(sums, 0).T
    means = {"kl_plain": plain / n, "kl_tuned": tuned / n, "n": n.astype(int)}
    return pd.DataFrame({"layer": range(len(n)), **means})

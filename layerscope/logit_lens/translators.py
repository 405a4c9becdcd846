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

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector

from layerscope.core import LayerscopeError, first_line
from layerscope.core.saved import read_facts
from layerscope.models import LayeredModel
from layerscope.models.forward import Inputs
from layerscope.models.identity import weights_fingerprint
from layerscope.models.lens import CHUNK

KIND, STEP = "translators", "step"
ABOUT, WEIGHTS = "translators.json", "translators.safetensors"
RETRAIN_HINT = "train them again in a new folder"
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


def open_translators(folder: Path, model: LayeredModel) -> Translators:
    """Return the translators in a folder, in float32 on the model's device.

    Raises `LayerscopeError` where there are none, and for those of another model.
    """
    tensors = read_weights(folder)
    refuse_other(folder, about_translators(model))
    if STEP in tensors:
        raise LayerscopeError(
            f"{str(folder)!r} holds a training that was stopped: give `train` again to resume it"
        )
    translators = Translators(model.depth, model.width)
    values = parameters_to_vector(tensors.values())
    size = sum(weight.numel() for weight in translators.parameters())
    if len(values) != size or not bool(torch.isfinite(values).all()):
        layers = f"layers 0 to {len(translators) - 1} of width {model.width}"
        raise LayerscopeError(
            f"{str(folder)!r} does not hold finite translators for {layers}: {RETRAIN_HINT}"
        )
    translators.load_state_dict(tensors)
    return translators.to(model.device)


def read_weights(folder: Path) -> dict[str, Tensor]:
    """Return the tensors of translators by name."""
    if not folder.is_dir():
        raise LayerscopeError(
            f"{str(folder)!r} does not exist: train translators there with the option `train`"
        )
    try:
        tensors: dict[str, Tensor] = load_file(folder / WEIGHTS)
    except (SafetensorError, OSError) as error:
        raise LayerscopeError(
            f"{str(folder)!r} holds no complete translators ({first_line(error)}): train some with `train`"
        ) from error
    return tensors


def about_translators(model: LayeredModel) -> dict[str, Any]:
    """Return what translators must have been trained for to fit a model, whatever the dtype that it is loaded in."""
    facts = {name: getattr(model.stack, name) for name in ("part", "depth", "width")}
    return facts | {"weights": weights_fingerprint(model.module, torch.bfloat16)}


def refuse_other(folder: Path, here: Mapping[str, Any]) -> None:
    """Raise for translators of another model or training: the first fact that differs is named."""
    there = read_facts(folder / ABOUT, KIND, RETRAIN_HINT)
    for name, value in here.items():
        if there.get(name) != value:
            old = str(there.get(name))[:12]
            new = str(value)[:12]
            mend = "give a folder of this model's, or a new one to train them in"
            raise LayerscopeError(
                f"{str(folder)!r} holds other translators ({name}: {old} there, {new} here): {mend}"
            )


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


def targets_by_layer(
    model: LayeredModel, inputs: Inputs, states: Sequence[Tensor]
) -> Iterator[tuple[int, Tensor, Tensor]]:
    """Yield each layer before the last, what the last one predicts, and its states.

    States come some rows at a time, as many as have logits that fit into a chunk.
    """
    assert model.lens is not None
    size = max(1, CHUNK // model.lens.classes)
    for rows in zip(*(torch.split(state, size) for state in states), strict=True):
        target = predictions_of(model, inputs, rows[-1])
        for layer, read in enumerate(rows[:-1]):
            yield layer, target, read


def predictions_of(model: LayeredModel, inputs: Inputs, states: Tensor) -> Tensor:
    """Return the log-probabilities [n, K] by the model's own head for token states [n, D]."""
    assert model.lens is not None
    return next(model.lens.token_logits(states, inputs)).log_softmax(-1)


def divergence(target: Tensor, predicted: Tensor) -> Tensor:
    """Return how far each row's predictions are from the target's: Kullback-Leibler, in nats.

    Both are log-probabilities `[n, K]`.

    >>> half, sure = torch.tensor([[0.5, 0.5]]).log(), torch.tensor([[0.75, 0.25]]).log()
    >>> divergence(half, half).item(), round(divergence(half, sure).item(), 3)
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
    """Return sums [L, 2] over token states [n, D] of layers 0 … L, for each layer before the last.

    They are the divergence from the last layer's predictions by the plain and the tuned lens.
    """
    sums = np.zeros((len(translators), 2))
    for k, target, plain in targets_by_layer(model, inputs, states):
        for column, read in enumerate((plain, translators.translated(k, plain))):
            apart = divergence(target, predictions_of(model, inputs, read))
            sums[k, column] += float(apart.double().sum())
    return sums


def fidelity(sums: Sequence[Sums], n: int) -> pd.DataFrame | None:
    """Return means over the n positions of all samples by layer; None without samples.

    >>> fidelity([np.array([[2.0, 1.0]]), np.array([[4.0, 1.0]])], 4)
       layer  kl_plain  kl_tuned  n
    0      0       1.5       0.5  4
    """
    if not sums:
        return None
    plain, tuned = np.sum(sums, 0).T / n
    layers = range(len(plain))
    return pd.DataFrame({"layer": layers, "kl_plain": plain, "kl_tuned": tuned, "n": n})

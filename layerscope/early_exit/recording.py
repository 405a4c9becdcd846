"""One pass over a data set in which no row leaves, and every layer says what it would predict."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import torch
from torch import Tensor

from layerscope.early_exit.criteria import sureness
from layerscope.early_exit.exit_model import ExitModel
from layerscope.early_exit.recorded import Recorded
from layerscope.models.forward import Inputs


def record(
    model: ExitModel,
    batches: Iterable[Inputs],
    labels: Sequence[int] | None = None,
    advance: Callable[[int], None] = lambda rows: None,
) -> Recorded:
    """Return what every layer of a model says of each sample, by the model's criterion.

    Args:
        model: whose layers are all read, whatever its exits are.
        batches: of the samples, in order.
        labels: the class number of each sample, where they are known.
        advance: is told the rows of each batch when it is done.

    Raises:
        LayerscopeError: where a layer gives logits that are NaN.

    """
    parts = []
    for inputs in batches:
        batch = inputs.to(model.device)
        parts.append(_batch(model, batch))
        advance(len(parts[-1][2]))
    scores, predictions, lengths = (np.concatenate(column) for column in zip(*parts, strict=True))
    known = None if labels is None else np.asarray(labels, dtype=np.int64)
    return Recorded(model.criterion, model.classes, scores, predictions, lengths, known)


def _batch(model: ExitModel, inputs: Inputs) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    scores: list[Tensor] = []
    predictions: list[Tensor] = []
    width = 1

    def keep(layer: int, logits: Tensor, rows: Tensor) -> Tensor:
        scores.append(sureness(logits, model.criterion, f"layer {layer}"))
        predictions.append(logits.argmax(-1).cpu())
        return torch.zeros(len(rows), dtype=torch.bool)

    def watch(event: str, rows: int, positions: int) -> None:
        nonlocal width
        width = positions if event == "front" else width

    outcome = model.run(inputs, range(1, model.depth), keep, watch)
    keep(model.depth, outcome.logits, outcome.layers)
    return torch.stack(scores, 1).numpy(), torch.stack(predictions, 1).numpy(), _lengths(model, inputs, width)


def _lengths(model: ExitModel, inputs: Inputs, width: int) -> np.ndarray:
    """Return the real positions of each sample; padding between them counts, as it stays."""
    rows = len(next(iter(inputs.named.values())))
    mask = model.layered.mask(inputs, torch.empty(rows, width, 0)) if width > 1 else None
    if mask is None:
        return np.full(rows, width)
    return (mask.bool() * torch.arange(1, width + 1, device=mask.device)).amax(1).cpu().numpy()

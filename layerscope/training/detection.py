"""Figure 18: every decoder layer of a DETR through the one class head and the one box head, trained and judged."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from layerscope.core.errors import LayerscopeError
from layerscope.core.option_kinds import Whole
from layerscope.metrics.average_precision import average_precision, right_boxes
from layerscope.models.capture import evaluating
from layerscope.training.exits import recorded
from layerscope.training.loss import check_classes, exit_weights

Labels = Sequence[Mapping[str, Tensor]]
OWN = "own"
DIGIT = 8
"""Pixels of a digit's side, which a canvas shows two or three times as large."""


def aligned_detection_loss(
    model: Any,
    pixel_values: Tensor,
    labels: Labels,
    pixel_mask: Tensor | None = None,
    weights: str | Sequence[float] = OWN,
    layers: Sequence[int] | None = None,
) -> Tensor:
    """Return Σ λ_ℓ loss(heads(norm(h_ℓ)), labels) over decoder layers of a DETR, a scalar.

    Args:
        model: a `transformers.DetrForObjectDetection`. Each layer's objects are matched to the labels (Hungarian
            algorithm) and compared by the model's own loss. Its `auxiliary_loss`, which this replaces, must be off:
            with it transformers hands the normalised states on to the next layer, and so changes the model.
        pixel_values: images `[B, C, H, W]`.
        labels: for each image `class_labels` `[n]` and `boxes` `[n, 4]` (centre and size, in shares of the image).
        pixel_mask: which pixels are real, `[B, H, W]`.
        weights: "own" (DETR's auxiliary losses: 1 for each layer), or those of `exit_weights`, which sum to 1:
            "linear", "uniform", or one number per layer.
        layers: the decoder layers that count; by default all. The last alone is DETR without auxiliary losses.

    Raises:
        LayerscopeError: for another kind of model, one whose `auxiliary_loss` is on, and classes that it lacks.

    Source: Tracing Representation Progression, appendix B.5; Carion et al. 2020 (DETR).

    Example:
        >>> from transformers import DetrForObjectDetection
        >>> from layerscope.training import aligned_detection_loss
        >>> model = DetrForObjectDetection.from_pretrained("tiny-detr")
        >>> labels = [{"class_labels": torch.tensor([1]), "boxes": torch.tensor([[0.5, 0.5, 0.2, 0.2]])}]
        >>> aligned_detection_loss(model, torch.zeros(1, 3, 32, 32), labels).shape
        torch.Size([])

    """
    for label in labels:
        check_classes(label["class_labels"], _detr(model).config.num_labels)
    depth = len(model.model.decoder.layers)
    which = range(1, depth + 1) if layers is None else layers
    shares = exit_weights(which, depth, "uniform" if weights == OWN else weights)
    total = pixel_values.new_zeros(())
    for share, (logits, boxes) in zip(shares, _objects(model, pixel_values, which, pixel_mask), strict=True):
        loss, *_ = model.loss_function(logits, labels, logits.device, boxes, model.config)
        total = total + (1.0 if weights == OWN else share) * loss
    return total


def ap50_by_layer(model: Any, pixel_values: Tensor, labels: Labels, batch_size: int = 64) -> list[float]:
    """Return the average precision (overlap from a half on) of each decoder layer of a DETR, averaged over classes.

    Arguments are those of `aligned_detection_loss`; every layer's objects go through the model's final norm and heads.
    Each object counts as its likeliest class that is one. Source: Tracing Representation Progression, figure 18.

    >>> from transformers import DetrForObjectDetection
    >>> from layerscope.training import ap50_by_layer
    >>> model = DetrForObjectDetection.from_pretrained("tiny-detr")
    >>> labels = [{"class_labels": torch.tensor([1]), "boxes": torch.tensor([[0.5, 0.5, 0.2, 0.2]])}]
    >>> len(ap50_by_layer(model, torch.zeros(1, 3, 32, 32), labels))  # a number for each decoder layer
    3
    """
    depth = len(_detr(model).model.decoder.layers)
    found: list[dict[int, list[tuple[Tensor, Tensor]]]] = [{} for _ in range(depth)]
    with evaluating(model), torch.no_grad():
        for start in range(0, len(labels), batch_size):
            pixels = pixel_values[start : start + batch_size].to(model.device)
            for layer, (logits, boxes) in enumerate(_objects(model, pixels, range(1, depth + 1))):
                chances, classes = logits.softmax(-1)[..., :-1].cpu().max(-1)  # the last class is no object
                for i, truth in enumerate(labels[start : start + batch_size]):
                    order = chances[i].argsort(descending=True)
                    for name in {*classes[i].tolist()}:
                        own = order[classes[i][order] == name]
                        hits = right_boxes(boxes[i].cpu()[own], truth["boxes"][truth["class_labels"] == name])
                        found[layer].setdefault(name, []).append((chances[i][own], hits))
    counts = torch.cat([label["class_labels"] for label in labels]).bincount()
    precisions = []
    for by_class in found:
        each = []
        for name in counts.nonzero()[:, 0].tolist():
            rows = by_class.get(name, [(torch.zeros(0), torch.zeros(0))])
            scores, hits = (torch.cat(column) for column in zip(*rows, strict=True))
            each.append(average_precision(scores, hits, int(counts[name])))
        precisions.append(float(np.mean(each)))
    return precisions


def digit_canvases(
    n: int, size: int = 48, seed: int = 0, held_out: bool = False
) -> tuple[Tensor, list[dict[str, Tensor]]]:
    """Return `n` square images `[n, 3, size, size]` with one to three handwritten digits on each, and their labels.

    Digits are scikit-learn's, two or three times as large, without overlap, on a dark noisy ground; those of
    `held_out` images are others than the rest are drawn with. Pixels are −1 … 1, labels as `aligned_detection_loss`
    takes them.

    >>> from layerscope.training import digit_canvases
    >>> pixels, labels = digit_canvases(2)
    >>> pixels.shape, [len(label["boxes"]) for label in labels]
    (torch.Size([2, 3, 48, 48]), [2, 1])
    """
    from sklearn.datasets import load_digits

    Whole(3 * DIGIT).take("size", size)
    data, rng = load_digits(), np.random.default_rng((seed, held_out))
    pool = np.arange(len(data.images))[(np.arange(len(data.images)) % 5 == 0) == held_out]
    pixels, labels = np.abs(rng.normal(0, 0.05, (n, size, size))), []
    for canvas in pixels:
        boxes: list[tuple[int, int, int]] = []
        classes = []
        for _ in range(rng.integers(1, 4)):
            side = DIGIT * int(rng.integers(2, 4))
            for _ in range(20):  # a crowded canvas keeps what fits
                x, y = rng.integers(0, size - side + 1, 2)
                if all(abs(2 * (x - a) + side - w) >= side + w or abs(2 * (y - b) + side - w) >= side + w
                       for a, b, w in boxes):  # fmt: skip
                    one = int(rng.choice(pool))
                    large = data.images[one].repeat(side // DIGIT, 0).repeat(side // DIGIT, 1) / 16
                    canvas[y : y + side, x : x + side] = np.maximum(canvas[y : y + side, x : x + side], large)
                    boxes.append((int(x), int(y), side))
                    classes.append(int(data.target[one]))
                    break
        known = torch.tensor(boxes, dtype=torch.float32)
        centres, sides = (known[:, :2] + known[:, 2:] / 2) / size, known[:, 2:].expand(-1, 2) / size
        labels.append({"class_labels": torch.tensor(classes), "boxes": torch.cat([centres, sides], 1)})
    scaled = torch.from_numpy(np.clip(2 * pixels - 1, -1, 1)).float()
    return scaled[:, None].repeat(1, 3, 1, 1), labels


def train_detector(
    model: Any,
    pixel_values: Tensor,
    labels: Labels,
    *,
    steps: int,
    batch_size: int = 32,
    learning_rate: float = 3e-4,
    clip: float = 0.1,
    seed: int = 0,
    **how: Any,
) -> list[float]:
    """Train a DETR in place by AdamW and a cosine schedule; return the loss of every step.

    `clip` is the largest norm of a step's gradient: DETR's own, or 1, at which a small one from random weights learns
    sooner. `how` are the `weights` and `layers` of `aligned_detection_loss`: by default every decoder layer is trained,
    as DETR's auxiliary losses do; `layers=[L]` trains the last alone.

    >>> from transformers import DetrForObjectDetection
    >>> from layerscope.training import train_detector
    >>> model = DetrForObjectDetection.from_pretrained("tiny-detr")
    >>> labels = [{"class_labels": torch.tensor([1]), "boxes": torch.tensor([[0.5, 0.5, 0.2, 0.2]])}]
    >>> losses = train_detector(model, torch.zeros(1, 3, 32, 32), labels, steps=2, batch_size=1)
    >>> len(losses)
    2
    """
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW(_detr(model).parameters(), learning_rate, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, learning_rate, total_steps=steps, pct_start=0.05)
    losses: list[float] = []
    model.train()
    for _ in range(steps):
        rows = torch.randint(len(labels), (batch_size,), generator=generator)
        truth = [{name: value.to(model.device) for name, value in labels[row].items()} for row in rows]
        loss = aligned_detection_loss(model, pixel_values[rows].to(model.device), truth, **how)
        if not bool(torch.isfinite(loss)):
            raise LayerscopeError(f"the loss of step {len(losses) + 1} is NaN or infinite: lower the learning rate")
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        schedule.step()
        losses.append(float(loss.detach()))
    return losses


def _detr(model: Any) -> Any:
    decoder = getattr(getattr(model, "model", None), "decoder", None)
    if decoder is None or not hasattr(model, "class_labels_classifier") or not hasattr(model, "bbox_predictor"):
        raise LayerscopeError(f"{type(model).__name__} is not a DETR: give a DetrForObjectDetection")
    if model.config.auxiliary_loss:
        raise LayerscopeError(
            "this DETR's auxiliary_loss is on: set config.auxiliary_loss = False, it is replaced here"
        )
    return model


def _objects(
    model: Any, pixel_values: Tensor, layers: Sequence[int], pixel_mask: Tensor | None = None
) -> list[tuple[Tensor, Tensor]]:
    """Return the class logits and the boxes of these decoder layers' objects, of one forward."""
    decoder = model.model.decoder
    with recorded(decoder, [f"layers.{number}" for number in range(len(decoder.layers))]) as states:
        model.model(pixel_values, pixel_mask=pixel_mask)
    normed = [decoder.layernorm(states[layer - 1]) for layer in layers]
    return [(model.class_labels_classifier(state), model.bbox_predictor(state).sigmoid()) for state in normed]

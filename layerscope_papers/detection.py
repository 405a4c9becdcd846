"""Figure 18: every decoder layer of a DETR through its one class head and its one box head, trained and judged."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from transformers.image_transforms import center_to_corners_format
from transformers.loss.loss_for_object_detection import box_iou

from layerscope import LayerscopeError

Labels = Sequence[Mapping[str, Tensor]]
"""For each image `class_labels` `[n]` and `boxes` `[n, 4]` (centre and size, in shares of the image)."""
DIGIT = 8
"""Pixels of a digit's side, which a canvas shows two or three times as large."""
TRIES = 20
"""A crowded canvas keeps the digits that find room within this many tries."""
RECALLS = np.linspace(0, 1, 101)


def detection_loss(
    model: Any,
    pixel_values: Tensor,
    labels: Labels,
    layers: Sequence[int] | None = None,
) -> Tensor:
    """Return Σ loss(heads(norm(h_ℓ)), labels) over decoder layers of a DETR, by default all of them, a scalar.

    Each layer's objects are matched to the labels and compared by the model's own loss. The model's
    `auxiliary_loss` must be off: with it transformers hands the normalised states on to the next
    layer, and so changes the model.

    Source: Tracing Representation Progression, appendix B.5; Carion et al. 2020 (DETR).
    """
    if model.config.auxiliary_loss:
        raise LayerscopeError(
            "this DETR's auxiliary_loss is on: set config.auxiliary_loss = False"
        )
    objects = detections(model, pixel_values)
    chosen = range(1, len(objects) + 1) if layers is None else layers
    total = pixel_values.new_zeros(())
    for layer in chosen:
        logits, boxes = objects[layer - 1]
        loss, *_ = model.loss_function(
            logits, labels, logits.device, boxes, model.config
        )
        total = total + loss
    return total


def detections(model: Any, pixel_values: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Return the class logits and the boxes of every decoder layer's objects, from one forward."""
    decoder = model.model.decoder
    states: list[Tensor] = []

    def keep(_: Any, __: Any, output: Any) -> None:
        states.append(output if isinstance(output, Tensor) else output[0])

    hooks = [layer.register_forward_hook(keep) for layer in decoder.layers]
    try:
        model.model(pixel_values)
    finally:
        for hook in hooks:
            hook.remove()
    normed = [decoder.layernorm(state) for state in states]
    return [
        (model.class_labels_classifier(state), model.bbox_predictor(state).sigmoid())
        for state in normed
    ]


def train_detector(
    model: Any,
    pixel_values: Tensor,
    labels: Labels,
    *,
    steps: int,
    batch_size: int = 32,
    learning_rate: float = 2e-3,
    seed: int = 0,
    layers: Sequence[int] | None = None,
) -> list[float]:
    """Train a DETR in place by AdamW and a cosine schedule; return the loss of every step.

    `layers` are those of `detection_loss`: `[L]` trains the last alone.
    """
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW(model.parameters(), learning_rate, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, learning_rate, total_steps=steps, pct_start=0.05
    )
    losses: list[float] = []
    model.train()
    for _ in range(steps):
        rows = torch.randint(len(labels), (batch_size,), generator=generator)
        truth = [
            {name: value.to(model.device) for name, value in labels[row].items()}
            for row in rows
        ]
        loss = detection_loss(model, pixel_values[rows].to(model.device), truth, layers)
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        # 1 where DETR's own training clips at 0.1: a small detector from random weights learns
        # sooner
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        losses.append(float(loss.detach()))
    return losses


def ap50_by_layer(
    model: Any, pixel_values: Tensor, labels: Labels, batch_size: int = 64
) -> list[float]:
    """Return the average precision (overlap from a half on) of each decoder layer, whatever the class of an object.

    Source: Tracing Representation Progression, figure 18.
    """
    model.eval()
    scored: list[list[tuple[Tensor, Tensor]]] = [[] for _ in model.model.decoder.layers]
    for start in range(0, len(labels), batch_size):
        truths = labels[start : start + batch_size]
        pixels = pixel_values[start : start + batch_size].to(model.device)
        with torch.no_grad():
            objects = detections(model, pixels)
        for detections_of_layer, (logits, boxes) in zip(scored, objects, strict=True):
            detections_of_layer += map(_scored, logits.cpu(), boxes.cpu(), truths)
    positives = sum(len(label["boxes"]) for label in labels)
    return [
        _precision(detections_of_layer, positives) for detections_of_layer in scored
    ]


def _scored(
    logits: Tensor, boxes: Tensor, truth: Mapping[str, Tensor]
) -> tuple[Tensor, Tensor]:
    """Return how sure the objects of an image are, the surest first, and whether they are right."""
    # the last class is no object
    sure = logits.softmax(-1)[..., :-1].amax(-1)
    order = sure.argsort(descending=True)
    return sure[order], right_boxes(boxes[order], truth["boxes"])


def _precision(of_images: list[tuple[Tensor, Tensor]], positives: int) -> float:
    scores, hits = (
        torch.cat(column).numpy() for column in zip(*of_images, strict=True)
    )
    return average_precision(scores, hits, positives)


def average_precision(
    scores: npt.ArrayLike, hits: npt.ArrayLike, positives: int
) -> float:
    """Return the average precision of detections of one class, 0 … 1, as COCO defines it.

    `scores` `[n]` are the confidences of detections, `hits` `[n]` say which are right; `positives`
    is the number of objects there are. Precision is the best at a recall or above, averaged over
    101 recalls.

    Source: Everingham et al. 2010, The PASCAL Visual Object Classes Challenge; Lin et al. 2014,
    Microsoft COCO.

    >>> round(average_precision([0.9, 0.8, 0.7], [True, False, True], positives=2), 4)  # 1 up to half, then 2/3
    0.835
    """
    order = np.argsort(-np.asarray(scores, dtype=np.float64), kind="stable")
    right = np.asarray(hits, dtype=bool)[order].cumsum()
    precision = right / np.arange(1, len(right) + 1)
    best_from_here = np.append(np.maximum.accumulate(precision[::-1])[::-1], 0.0)
    return float(
        best_from_here[np.searchsorted(right / positives, RECALLS - 1e-12)].mean()
    )


def right_boxes(boxes: Tensor, truths: Tensor, overlap: float = 0.5) -> Tensor:
    """Return which of some boxes `[n, 4]`, the surest first, find one of the `truths` `[m, 4]` that none before found.

    Boxes are centre and size; two match from an intersection over union of `overlap` on, each the
    best it can have.
    """
    right = torch.zeros(len(boxes), dtype=torch.bool)
    if not len(truths):
        return right
    corners = map(center_to_corners_format, (boxes, truths))
    shared, _ = box_iou(*corners)
    for row in range(len(boxes)):
        best = int(shared[row].argmax())
        if shared[row, best] >= overlap:
            right[row] = True
            shared[:, best] = -1.0
    return right


def digit_canvases(
    n: int, size: int = 48, seed: int = 0, *, held_out: bool = False
) -> tuple[Tensor, list[dict[str, Tensor]]]:
    """Return `n` square images `[n, 3, size, size]` with one to three handwritten digits on each, and their labels.

    Digits are scikit-learn's, two or three times as large, without overlap, on a dark noisy ground;
    those of `held_out` images are others than the rest are drawn with. All are of one class. Pixels
    are −1 … 1.

    >>> pixels, labels = digit_canvases(2)
    >>> pixels.shape, [len(label["boxes"]) for label in labels]
    (torch.Size([2, 3, 48, 48]), [2, 1])
    """
    from sklearn.datasets import load_digits

    data = load_digits()
    rng = np.random.default_rng((seed, held_out))
    everyone = np.arange(len(data.images))
    pool = everyone[(everyone % 5 == 0) == held_out]
    canvases = np.abs(rng.normal(0, 0.05, (n, size, size)))
    labels = []
    for canvas in canvases:
        placed: list[tuple[int, int, int]] = []
        taken = np.zeros_like(canvas, dtype=bool)
        for _ in range(rng.integers(1, 4)):
            side = DIGIT * int(rng.integers(2, 4))
            corner = _free_corner(rng, taken, side)
            if corner is None:
                continue
            x, y = corner
            digit = int(rng.choice(pool))
            scale = side // DIGIT
            large = data.images[digit].repeat(scale, 0).repeat(scale, 1) / 16
            square = np.s_[y : y + side, x : x + side]
            canvas[square] = np.maximum(canvas[square], large)
            taken[square] = True
            placed.append((x, y, side))
        boxes = torch.tensor(placed, dtype=torch.float32)
        centres = (boxes[:, :2] + boxes[:, 2:] / 2) / size
        sides = boxes[:, 2:].expand(-1, 2) / size
        no_class = torch.zeros(len(placed), dtype=torch.long)
        labels.append(
            {"class_labels": no_class, "boxes": torch.cat([centres, sides], 1)}
        )
    pixels = torch.from_numpy(np.clip(2 * canvases - 1, -1, 1)).float()
    return pixels[:, None].repeat(1, 3, 1, 1), labels


def _free_corner(
    rng: np.random.Generator, taken: npt.NDArray[np.bool_], side: int
) -> tuple[int, int] | None:
    """Return the corner of a square in which no pixel is taken, None where no try finds one."""
    for _ in range(TRIES):
        x, y = map(int, rng.integers(0, len(taken) - side + 1, 2))
        if not taken[y : y + side, x : x + side].any():
            return x, y
    return None

"""The aligned loss of DETR: every decoder layer's objects through the one class head and the one box head."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from layerscope.core.errors import LayerscopeError
from layerscope.training.exits import recorded
from layerscope.training.loss import check_classes, exit_weights


def aligned_detection_loss(
    model: Any,
    pixel_values: Tensor,
    labels: Sequence[Mapping[str, Tensor]],
    pixel_mask: Tensor | None = None,
    weights: str | Sequence[float] = "linear",
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
        weights: "linear", "uniform", or one number per layer: see `exit_weights`.
        layers: the decoder layers that count; by default all.

    Raises:
        LayerscopeError: for another kind of model, one whose `auxiliary_loss` is on, and classes that it lacks.

    Source: Tracing Representation Progression, appendix B.5.

    Example:
        >>> from transformers import DetrForObjectDetection
        >>> from layerscope.training import aligned_detection_loss
        >>> model = DetrForObjectDetection.from_pretrained("tiny-detr")
        >>> labels = [{"class_labels": torch.tensor([1]), "boxes": torch.tensor([[0.5, 0.5, 0.2, 0.2]])}]
        >>> aligned_detection_loss(model, torch.zeros(1, 3, 32, 32), labels).shape
        torch.Size([])

    """
    decoder = getattr(getattr(model, "model", None), "decoder", None)
    if decoder is None or not hasattr(model, "class_labels_classifier") or not hasattr(model, "bbox_predictor"):
        raise LayerscopeError(f"{type(model).__name__} is not a DETR: give a DetrForObjectDetection")
    if model.config.auxiliary_loss:
        raise LayerscopeError(
            "this DETR's auxiliary_loss is on: set config.auxiliary_loss = False, it is replaced here"
        )
    for label in labels:
        check_classes(label["class_labels"], model.config.num_labels)
    depth = len(decoder.layers)
    which = range(1, depth + 1) if layers is None else layers
    shares = exit_weights(which, depth, weights)
    with recorded(decoder, [f"layers.{number}" for number in range(depth)]) as states:
        model.model(pixel_values, pixel_mask=pixel_mask)
    total = pixel_values.new_zeros(())
    for layer, share in zip(which, shares, strict=True):
        state = decoder.layernorm(states[layer - 1])
        logits, boxes = model.class_labels_classifier(state), model.bbox_predictor(state).sigmoid()
        loss, *_ = model.loss_function(logits, labels, state.device, boxes, model.config)
        total = total + share * loss
    return total

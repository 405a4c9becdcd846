import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from layerscope.core.errors import LayerscopeError

RECALLS = np.linspace(0, 1, 101)


def average_precision(scores: ArrayLike, hits: ArrayLike, positives: int) -> float:
    """Return the average precision of detections of one class, 0 ... 1, as COCO defines it; NaN without positives.

    `scores` `[n]` are the confidences of detections, `hits` `[n]` say which are right; `positives` is the number of
    objects there are. Precision is the best at a recall or above, averaged over 101 recalls.

    Source: Everingham et al. 2010, The PASCAL Visual Object Classes Challenge; Lin et al. 2014, Microsoft COCO.

    >>> round(average_precision([0.9, 0.8, 0.7], [True, False, True], positives=2), 4)  # 1 up to half, then 2/3
    0.835
    """
    sure, right = np.asarray(scores, dtype=np.float64), np.asarray(hits, dtype=bool)
    if sure.ndim != 1 or sure.shape != right.shape or right.sum() > positives:
        raise LayerscopeError(
            f"scores {sure.shape}, hits {right.shape} and {positives} positives: give a score and a hit for each "
            "detection, and the number of objects there are"
        )
    if not positives:
        return float("nan")
    found = right[np.argsort(-sure, kind="stable")].cumsum()
    precision = np.append(np.maximum.accumulate((found / np.arange(1, len(found) + 1))[::-1])[::-1], 0.0)
    return float(precision[np.searchsorted(found / positives, RECALLS - 1e-12)].mean())


def right_boxes(boxes: Tensor, truths: Tensor, overlap: float = 0.5) -> Tensor:
    """Return which of some boxes `[n, 4]`, the surest first, find one of the `truths` `[m, 4]` that none before found.

    Boxes are centre and size; two match from an intersection over union of `overlap` on, each the best it can have.
    """
    low, high = (torch.stack([b[:, :2] - b[:, 2:] / 2, b[:, :2] + b[:, 2:] / 2]) for b in (boxes, truths))
    sides = (torch.minimum(low[1][:, None], high[1]) - torch.maximum(low[0][:, None], high[0])).clamp_min(0)
    inside = sides.prod(-1)
    shared = inside / (boxes[:, 2:].prod(-1)[:, None] + truths[:, 2:].prod(-1) - inside)
    found = torch.zeros(len(boxes), dtype=torch.bool)
    for row in range(len(boxes)) if len(truths) else ():
        best = int(shared[row].argmax())
        if shared[row, best] >= overlap:
            found[row] = True
            shared[:, best] = -1.0
    return found

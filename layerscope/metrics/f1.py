import torch
from torch import Tensor

from layerscope.metrics.arrays import Array
from layerscope.metrics.metric import Metric
from layerscope.metrics.readings import FromReadings, as_predictions


def f1(predictions: Array, labels: Array, classes: int | None = None) -> Tensor:
    """Return the F1 score at each layer, `[L]`, 0 ... 1, float64: of class 1 if there are two, else the macro mean.

    `predictions` is `[..., L]` and `labels` `[...]`, class ids 0 ... K - 1; `classes` is K, by
    default one more than the largest id. The macro mean is over the classes that occur among
    predictions or labels.

    Source: van Rijsbergen 1979, Information Retrieval; Wang et al. 2019, GLUE (MRPC and QQP).

    >>> f1(np.array([[0, 1], [1, 1], [1, 1]]), np.array([0, 1, 0]))  # three samples, two layers
    tensor([0.6667, 0.5000], dtype=torch.float64)
    """
    tops, truth = as_predictions(predictions, labels)
    count = classes or int(max(tops.max(), truth.max())) + 1
    layers = tops.reshape(-1, tops.shape[-1]).T
    return f1_of(torch.stack([hits(top, truth.reshape(-1), count) for top in layers]))


def hits(top: Tensor, truth: Tensor, classes: int) -> Tensor:
    """Return how often each class is predicted rightly, predicted, and there, `[3, K]`, which sums over batches."""
    return torch.stack(
        [torch.bincount(each, minlength=classes) for each in (truth[top == truth], top, truth)]
    )


def f1_of(counts: Tensor) -> Tensor:
    """Return the F1 score `[...]` of such counts `[..., 3, K]`."""
    right, predicted, there = counts.double().unbind(-2)
    every = 2 * right / (predicted + there)  # NaN for a class that is neither
    return every[..., 1] if counts.shape[-1] == 2 else every.nanmean(-1)


F1 = Metric(
    f1,
    FromReadings(),
    title="F1",
    unit="%",
    reading="F1 score, read through the model's head",
    meaning="Harmonic mean of precision and recall of what the head predicts from a layer: for two classes that of "
    "the second, else the average over classes; from 0 to 100 %.",
    direction="High: the head can already read this layer, rare classes too.",
)

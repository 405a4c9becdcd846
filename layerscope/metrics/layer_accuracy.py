import torch
from torch import Tensor

from layerscope.core import LayerscopeError
from layerscope.metrics.arrays import Array, mean
from layerscope.metrics.metric import Metric
from layerscope.metrics.readings import ByLayer, FromReadings, Readings


def layer_accuracy(predictions: Array, labels: Array) -> Tensor:
    """Return the share of samples whose top prediction is the label, at each layer, `[L]`, 0 ... 1, float64.

    `predictions` is `[..., L]` and `labels` `[...]`, of class or token ids.

    Source: Jiang, Zhou, Zhu 2025, Tracing Representation Progression, equation 2.

    >>> layer_accuracy(np.array([[0, 1, 1], [1, 1, 0]]), np.array([1, 0]))  # two samples, three layers
    tensor([0.0000, 0.5000, 1.0000], dtype=torch.float64)
    """
    tops = torch.as_tensor(predictions)
    truth = torch.as_tensor(labels).to(tops.device)
    if tops.ndim < 1 or tops.shape[:-1] != truth.shape or truth.numel() == 0:
        raise LayerscopeError(
            f"predictions has shape {tuple(tops.shape)} and labels {tuple(truth.shape)}: "
            "give [..., layers] predictions and one label for each row"
        )
    return (tops == truth[..., None]).double().reshape(-1, tops.shape[-1]).mean(0)


def _accuracies(readings: Readings) -> ByLayer:
    if readings.target is not None:
        for layer, hits in enumerate((readings.prediction == readings.target).double()):
            yield layer, mean(hits)


LAYER_ACCURACY = Metric(
    layer_accuracy,
    FromReadings(_accuracies),
    unit="%",
    reading="accuracy, read through the model's head",
    meaning="Share of correct predictions when a layer's states go through all that follows the model's last block: "
    "norm, pooler and head.",
    direction="High: the head can already read this layer.",
)

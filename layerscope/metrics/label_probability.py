import torch
from torch import Tensor

from layerscope.core import LayerscopeError
from layerscope.metrics.arrays import Array, as_tensor
from layerscope.metrics.metric import Metric
from layerscope.metrics.readings import FromReadings


def label_probability(logits: Array, labels: Array) -> Tensor:
    """Return the softmax probability of the label at each layer, `[..., L]`, 0 ... 1.

    `logits` is `[..., L, K]` and `labels` `[...]`, class ids 0 ... K - 1. In float32, or float64
    where the logits are.

    Source: Jiang, Zhou, Zhu 2025, Tracing Representation Progression, theorem 2.2.

    >>> label_probability(np.log([[[0.5, 0.5], [0.9, 0.1]]]), np.array([0]))  # one sample, two layers, two classes
    tensor([[0.5000, 0.9000]], dtype=torch.float64)
    """
    scores = as_tensor(logits, "logits")
    truth = torch.as_tensor(labels).to(scores.device)
    if scores.ndim < 2 or scores.shape[:-2] != truth.shape:
        raise LayerscopeError(
            f"logits has shape {tuple(scores.shape)} and labels {tuple(truth.shape)}: "
            "give [..., layers, classes] logits and one label for each sample"
        )
    classes = scores.shape[-1]
    if ((truth < 0) | (truth >= classes)).any():
        raise LayerscopeError(
            f"labels are {int(truth.min())} to {int(truth.max())}: "
            f"logits of {classes} classes need 0 to {classes - 1}"
        )
    chosen = truth.long()[..., None, None].expand(*scores.shape[:-1], 1)
    return scores.softmax(-1).gather(-1, chosen)[..., 0]


LABEL_PROBABILITY = Metric(
    label_probability,
    FromReadings(),
    unit="%",
    reading="mean probability of the label, read through the model's head",
    meaning="Softmax probability that the head gives the right answer when it reads a layer, averaged over samples or "
    "tokens; from 0 to 100 %.",
    direction="High: the layer is sure of what is right.",
)

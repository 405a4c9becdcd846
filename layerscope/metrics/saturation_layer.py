import torch
from torch import Tensor

from layerscope.core import LayerscopeError
from layerscope.metrics.arrays import Array, mean
from layerscope.metrics.metric import Metric
from layerscope.metrics.readings import ByLayer, FromReadings, Readings


def saturation_layer(predictions: Array, first_layer: int = 1) -> Tensor:
    """Return the smallest layer from which the top prediction never changes again.

    `predictions` is `[..., L]`, one column for each of L consecutive layers from `first_layer`; the
    result `[...]` is an integer tensor. A layer that agrees with the last one before changing its
    mind does not count.

    Source: Jiang, Zhou, Zhu 2025, Tracing Representation Progression, section 2.2.

    >>> saturation_layer(np.array([[3, 7, 7, 7], [7, 3, 3, 7]]))  # top tokens at layers 1 to 4 of two positions
    tensor([2, 4])
    """
    tops = torch.as_tensor(predictions)
    if tops.ndim < 1 or tops.shape[-1] == 0:
        raise LayerscopeError(
            f"predictions has shape {tuple(tops.shape)}: give at least one layer's column"
        )
    differs = tops != tops[..., -1:]
    after_last_change = differs * torch.arange(
        1, tops.shape[-1] + 1, device=tops.device
    )
    return after_last_change.amax(-1) + first_layer


def _first(readings: Readings) -> tuple[int, Tensor]:
    """Return the position of the first layer after layer 0, and that from which each prediction stays."""
    start = int(readings.layers[0] == 0)
    return start, saturation_layer(readings.prediction[start:].T, start)


def _at_the_last(readings: Readings) -> ByLayer:
    _, first = _first(readings)
    layers = torch.tensor(readings.layers)[first]
    yield len(readings.prediction) - 1, mean(layers.double())


def _shares(readings: Readings) -> ByLayer:
    start, first = _first(readings)
    for position in range(start, len(readings.prediction)):
        yield position, mean((first <= position).double())


SATURATION_LAYER = Metric(
    saturation_layer,
    FromReadings(_at_the_last),
    title="saturation",
    reading="layer from which the prediction stays",
    formula="mean of the least ℓ ≥ 1 with argmax pₘ = argmax p_L for all m ≥ ℓ",
    meaning="Smallest layer from which the head's top prediction never changes again; from 1 to the last layer. "
    "Averaged over predictions.",
    direction="Low: predictions settle early, and later layers no longer change them.",
    curve=False,
)
AGREEMENT = Metric(
    None,
    FromReadings(),
    name="agreement",
    unit="%",
    reading="share of predictions equal to the last layer's",
    formula="mean of [argmax p_ℓ = argmax p_L]",
    meaning="Share of predictions in which the top answer of this layer is that of the last layer; from 0 to 100 %. "
    "For a language model it is the share of first draft tokens by this layer that greedy self-speculation "
    "accepts.",
    direction="High: what leaves or is drafted here rarely differs from the whole model's answer.",
    source="Elhoushi et al. 2024, LayerSkip, section 4.3",
)
SATURATED = Metric(
    saturation_layer,
    FromReadings(_shares),
    name="saturated",
    unit="%",
    reading="share of predictions that no longer change",
    meaning="Share of predictions whose saturation layer is this one or an earlier one; it reaches 100 % at the last "
    "layer.",
    direction="High at an early layer: only a few samples need the layers after it.",
)

from collections.abc import Callable

import torch
from torch import Tensor

from layerscope.core import LayerscopeError
from layerscope.metrics.arrays import (
    Array,
    as_pair64,
    centred,
    directions,
    typical_norm,
)
from layerscope.metrics.blocks import States, in_pairs, opened
from layerscope.metrics.metric import Metric
from layerscope.metrics.pairs import CENTERING, FromPairs

WIDTHS = "cosine needs equal widths, cka compares any two"


def cosine_similarity(X: Array, Y: Array, center: bool = True) -> Tensor:
    """Return the cosine between each sample's two vectors, one value `[..., N]` a sample.

    `X` and `Y` are `[..., N, D]`. `center` first subtracts from each its own mean over the samples,
    without which a direction common to all samples hides what differs. -1 ... 1, and NaN where a
    vector is zero up to float32's rounding of the vectors' typical norm, as equal vectors are once
    they are centred.

    Source: Jiang, Zhou, Zhu 2025, Tracing Representation Progression, section 2 and footnote 2.

    >>> cosine_similarity(np.array([[1.0, 0.0]]), np.array([[1.0, 1.0]]), center=False)
    tensor([0.7071], dtype=torch.float64)
    """
    units = []
    for rows in as_pair64(X, Y, ("X", "Y"), WIDTHS):
        moved = centred(rows) if center else rows
        units.append(directions(moved, typical_norm(rows)))
    cosines: Tensor = torch.linalg.vecdot(*units)
    return cosines.clamp(-1.0, 1.0)


def cosine_to(states: States, layer: int = -1, center: bool = True) -> Tensor:
    """Return each sample's cosine between every layer and one of them, `[N, L]` in float64, read in blocks.

    `states` as in `similarity_matrix`; `layer` counts from the end where negative. Column l equals
    `cosine_similarity(states[:, l], states[:, layer], center)`: -1 ... 1, NaN for zero vectors.

    >>> states = np.random.default_rng(0).normal(size=(20, 4, 3))  # samples, layers, width
    >>> round(cosine_to(states)[0, -1].item(), 3)  # the last layer is compared with itself
    1.0
    """
    blocks, _ = opened(states, None, center)
    if not -blocks.layers <= layer < blocks.layers:
        raise LayerscopeError(
            f"layer {layer} does not exist: these states have layers 0..{blocks.layers - 1}"
        )
    cosines = blocks.scale.new_empty(blocks.count, blocks.layers)
    for span, rows in zip(blocks.spans, blocks, strict=True):
        unit = directions(rows, blocks.scale)
        # Written at once: small results among large blocks would keep their memory from being used
        # again.
        cosines[span] = torch.linalg.vecdot(unit, unit[layer]).mT
    return cosines.clamp_(-1.0, 1.0)


def cosine_pairs(
    states: States, center: bool = True, others: States | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return mean, standard error and number `[L, L']` of the per-sample cosines of every two layers, read in blocks.

    `states` and `others` as in `similarity_matrix`, whose cosine matrix is the first of the three.
    Samples without a cosine (`cosine_to`) are not counted; the mean of none and the error of one
    are NaN. Raises `LayerscopeError` for `others` of another number of samples or another width.

    >>> states = np.random.default_rng(0).normal(size=(20, 4, 3))  # samples, layers, width
    >>> mean, error, number = cosine_pairs(states)
    >>> mean.shape, int(number[0, 3])
    (torch.Size([4, 4]), 20)
    """
    mean, error, counts = moments(states, center, others, lambda cosines: cosines)
    return mean.clamp(-1.0, 1.0), error, counts


def moments(
    states: States,
    center: bool,
    others: States | None,
    seen: Callable[[Tensor], Tensor],
) -> tuple[Tensor, Tensor, Tensor]:
    """Return mean, standard error and number of a function of each sample's cosine, as `cosine_pairs` does."""
    left, right = opened(states, others, center, WIDTHS)
    total = left.scale.new_zeros(left.layers, right.layers)
    squares = total.clone()
    counts = total.clone()
    for rows, columns in in_pairs(left, right):
        a, has_a = left.directions(rows)
        b, has_b = right.directions(columns)
        # A sample without a direction must not add what its zeros give.
        has_both = has_a.mT[:, :, None] * has_b.mT[:, None, :]
        values = seen(a.transpose(0, 1) @ b.permute(1, 2, 0)) * has_both
        total += values.sum(0)
        squares += values.square().sum(0)
        counts += has_both.sum(0)
    mean = total / counts
    spread = (squares / counts - mean.square()).clamp(min=0.0)
    variance = torch.where(counts > 1, spread / (counts - 1), torch.nan)
    return mean, variance.sqrt(), counts.long()


COSINE_SIMILARITY = Metric(
    cosine_similarity,
    FromPairs(cosine_pairs, "{}", CENTERING, least=0, all_samples=True, one_width=True),
    title="cosine",
    reading="1: two layers hold the same directions",
    formula="centered: mean of (a − ā) · (b − b̄) / (‖a − ā‖ ‖b − b̄‖); uncentered: mean of a · b / (‖a‖ ‖b‖)",
    meaning="Cosine between the vectors that two layers give one sample, each layer centred by its own mean over the "
    "samples unless it is called uncentred, averaged over samples; from −1 to 1.",
    direction="1: the two layers hold the same directions. It says how far a layer is from another, not how good it "
    "is.",
)

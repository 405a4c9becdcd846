import torch
from torch import Tensor

from layerscope.metrics.arrays import Array, as_pair64, centred, directions, typical_norm
from layerscope.metrics.metric import Metric
from layerscope.metrics.pairs.cosines import WIDTHS, cosine_pairs, mean_cosines
from layerscope.metrics.pairs.similarity import FromPairs


def cosine_similarity(X: Array, Y: Array, center: bool = True) -> Tensor:
    """Return the cosine between each sample's two vectors, one value `[..., N]` a sample.

    `X` and `Y` are `[..., N, D]`. `center` first subtracts from each its own mean over the samples, without which a
    direction common to all samples hides what differs; centring modalities apart removes the gap between them. -1 ...
    1, and NaN where a vector is zero up to float32's rounding of the vectors' typical norm, as equal vectors are once
    they are centred.

    Source: Jiang, Zhou, Zhu 2025, Tracing Representation Progression, section 2 and footnote 2.

    >>> from layerscope.metrics import cosine_similarity
    >>> cosine_similarity(np.array([[1.0, 0.0]]), np.array([[1.0, 1.0]]), center=False)
    tensor([0.7071], dtype=torch.float64)
    """
    pair = as_pair64(X, Y, ("X", "Y"), WIDTHS)
    units = (directions(centred(rows) if center else rows, typical_norm(rows)) for rows in pair)
    cosines: Tensor = torch.linalg.vecdot(*units)
    return cosines.clamp(-1.0, 1.0)


COSINE_SIMILARITY = Metric(
    cosine_similarity,
    FromPairs(mean_cosines, "centered", least=0, all_samples=True, one_width=True, by_sample=cosine_pairs),
    title="cosine",
    reading="1: two layers hold the same directions",
    meaning="Cosine between the vectors that two layers give one sample, each layer centred by its own mean over the "
    "samples, averaged over samples; from −1 to 1.",
    direction="1: the two layers hold the same directions. It says how far a layer is from another, not how good it "
    "is.",
    order=0,
)

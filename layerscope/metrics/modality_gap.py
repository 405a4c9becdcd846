from torch import Tensor
from torch.linalg import vector_norm

from layerscope.metrics.arrays import Array, as_result, unit_rows
from layerscope.metrics.cosine_similarity import WIDTHS
from layerscope.metrics.metric import Metric
from layerscope.metrics.pairs import FromPairs, Measure, Prepared, by_layer, of_pair


def modality_gap(X: Array, Y: Array) -> float | Tensor:
    """Return the distance between the mean directions of two sets of states, as of images and of their captions.

    `X` and `Y` are `[..., N, D]`; each row is scaled to unit norm before the mean is taken. 0 where
    both have one centre, at most 2.

    Source: Liang et al. 2022, Mind the Gap, section 2.

    >>> modality_gap(np.array([[2.0, 0.0], [1.0, 0.0]]), np.array([[-1.0, 0.0], [-3.0, 0.0]]))
    2.0
    """
    return as_result(of_pair(_measure(), X, Y))


def _measure() -> Measure:
    def prepare(rows: Tensor) -> Prepared:
        return (unit_rows(rows).mean(-2),)

    return Measure(
        "modality gap",
        1,
        prepare,
        lambda a, b: vector_norm(a[0] - b[0], dim=-1),
        widths=WIDTHS,
    )


MODALITY_GAP = Metric(
    modality_gap,
    FromPairs(by_layer(_measure), "unit", least=1, one_width=True),
    reading="0: both sets of states have one centre",
    formula="‖mean of aᵢ / ‖aᵢ‖ − mean of bᵢ / ‖bᵢ‖‖",
    meaning="Distance between the mean directions of the states of two layers or towers, every state scaled to unit "
    "length; from 0 to 2.",
    direction="High: the two sets lie in different parts of the space, as images and texts do in models that were "
    "trained to match them. A cosine of centred states does not see it.",
    low=True,
)

"""How far states have collapsed onto their classes: of all states at once, or of sums by class over batches.

Late in training the states of a class come to lie on one point (NC1), the points equally far from
their centre and from each other (NC2), and a linear classifier takes the directions of the points
(NC3). With Σ_W the covariance within the classes and Σ_B that of the K class means, NC1 is
trace(Σ_W Σ_B⁺) / K. Σ_B has at most K − 1 directions that count, so that of Σ_W only the variance
along these is needed:

    class means, centred [K, D]  →  K − 1 directions  →  variance within, over variance between

Sums by class give all of this, so that states need not be in memory together.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.linalg import matrix_norm, vector_norm

from layerscope.core import LayerscopeError
from layerscope.metrics.arrays import Array, above_diagonal, as_finite64, check_choice
from layerscope.metrics.metric import How, Metric

_CUT = 1e-10


@dataclass(frozen=True)
class NeuralCollapse:
    """How far states have collapsed onto their classes; each is a float64 tensor `[...]`, 0 where they have wholly.

    `nc1` is trace(Σ_W Σ_B⁺) / K; `nc2_norms` the coefficient of variation of the norms of the
    centred class means, `nc2_angles` the mean |cos + 1/(K − 1)| of their pairs; `nc3` the distance
    of the classifier's rows from the class means, both scaled to unit norm as a whole, None without
    a classifier. Where all class means are equal, NC1 and NC2 are NaN.

    >>> found = neural_collapse(np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]), np.array([0, 0, 1, 1]))
    >>> round(found.nc1.item(), 4), found.nc3
    (0.0, None)
    """

    nc1: Tensor
    nc2_norms: Tensor
    nc2_angles: Tensor
    nc3: Tensor | None


def neural_collapse(
    states: Array,
    labels: Array,
    classifier: Array | None = None,
    global_mean: str = "samples",
) -> NeuralCollapse:
    """Return NC1, NC2 and NC3 of states `[..., N, D]` with labels `[N]`, float64.

    `classifier` is `[K, D]`, a row a class in the order of the sorted labels. The global mean is
    that of all samples, or of the class means; they differ where classes differ in size. There must
    be two classes or more.

    Source: Papyan, Han, Donoho 2020; Tracing Representation Progression, footnote 5.

    >>> states = np.array([[1.0, 0.0], [1.0, 0.2], [0.0, 1.0], [0.2, 1.0]])
    >>> round(neural_collapse(states, np.array([0, 0, 1, 1])).nc1.item(), 4)
    0.0062
    """
    check_choice(global_mean, "global_mean", ("samples", "classes"))
    rows = as_finite64(states, "states")
    numbers = torch.as_tensor(labels).to(rows.device)
    names, classes = torch.unique(numbers, return_inverse=True)
    if classes.shape != rows.shape[-2:-1]:
        raise LayerscopeError(
            f"{rows.shape[-2]} states and labels of shape {tuple(classes.shape)}: give one for each"
        )
    sums = ClassSums.empty(len(names), *rows.shape[:-2], rows.shape[-1])
    sums.update(rows, classes)
    collapse = sums.collapse(classifier, global_mean)
    if collapse is None:
        raise LayerscopeError(
            "all states have one label: neural collapse needs two classes or more"
        )
    return collapse


def _nc2_angles(between: Tensor) -> Tensor:
    """Return the mean |cos + 1/(K − 1)| `[...]` of the pairs of class means."""
    count = between.shape[-2]
    unit = torch.nn.functional.normalize(between, dim=-1)
    cosines = above_diagonal(unit @ unit.mT)
    angles = (cosines + 1 / (count - 1)).abs().mean(-1)
    return torch.where(vector_norm(between, dim=-1).amax(-1) > 0, angles, torch.nan)


def _nc3(between: Tensor, classifier: Array) -> Tensor:
    """Return the distance `[...]` of a classifier's rows from the class means, both at unit norm."""
    rows = as_finite64(classifier, "classifier").to(between.device)
    if rows.shape[-2:] != between.shape[-2:]:
        means = tuple(between.shape[-2:])
        raise LayerscopeError(
            f"classifier has shape {tuple(rows.shape)} and class means {means}: give one row for each class"
        )
    unit = rows / matrix_norm(rows, keepdim=True)
    other = between / matrix_norm(between, keepdim=True)
    distance: Tensor = matrix_norm(unit - other)
    return distance


@dataclass
class ClassSums:
    """Float64 sums of states `[..., n, D]` by class: `counts` `[K]`, `sums` `[..., K, D]`, one D x D `moment` of all.

    Each class is summed around a point near its mean, that of its first batch, in `shifts`: neither
    a large offset nor classes that have collapsed to points cancel digits away. Memory is 8 (D +
    2K) D bytes, whatever the number of states.

    >>> from layerscope.metrics.neural_collapse import ClassSums
    >>> both = [ClassSums.empty(2, 2), ClassSums.empty(2, 2)]
    >>> for sums in both:
    ...     sums.update(torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 1]))
    >>> (both[0] + both[1]).collapse().nc1.item()
    0.0
    """

    counts: Tensor
    shifts: Tensor
    sums: Tensor
    moment: Tensor

    @classmethod
    def empty(cls, classes: int, *shape: int) -> "ClassSums":
        """Return the sums of no state yet; a state has the `shape` `[..., D]`."""
        rows = (*shape[:-1], classes, shape[-1])
        parts = ((classes,), rows, rows, (*shape, shape[-1]))
        return cls(*(torch.zeros(part, dtype=torch.float64) for part in parts))

    def update(self, states: Tensor, labels: Tensor) -> None:
        """Add finite states `[..., n, D]` with their classes `[n]`."""
        if states.device.type != "mps":  # which knows no float64
            self.to(states.device)
        rows = states.to(self.moment.device).double()
        labels = labels.to(self.moment.device)
        counts = torch.bincount(labels, minlength=len(self.counts))
        first = (self.counts == 0) & (counts > 0)
        totals = torch.zeros_like(self.shifts).index_add_(-2, labels, rows)
        self.shifts[..., first, :] = (totals / counts[:, None])[..., first, :]
        moved = rows - self.shifts[..., labels, :]
        self.counts += counts
        self.sums.index_add_(-2, labels, moved)
        self.moment += moved.mT @ moved

    def to(self, device: torch.device | str) -> None:
        """Move to a device."""
        for name, sums in vars(self).items():
            setattr(self, name, sums.to(device))

    def __add__(self, other: "ClassSums") -> "ClassSums":
        other.to(self.moment.device)
        shifts = torch.where((self.counts == 0)[:, None], other.shifts, self.shifts)
        offsets = (other.shifts - shifts) * (other.counts > 0)[:, None]
        moved = other.counts[:, None] * offsets
        cross = other.sums.mT @ offsets
        moment = self.moment + other.moment + cross + cross.mT + offsets.mT @ moved
        sums = self.sums + other.sums + moved
        return ClassSums(self.counts + other.counts, shifts, sums, moment)

    def collapse(
        self, classifier: Array | None = None, global_mean: str = "samples"
    ) -> NeuralCollapse | None:
        """Return what `neural_collapse` gives of all states at once; None for fewer than two classes.

        Classes without a state do not count, nor do their rows of the `classifier` `[K, D]`.
        """
        present = self.counts > 0
        if present.sum() < 2:
            return None
        if classifier is not None and len(classifier) == len(present):
            classifier = torch.as_tensor(classifier).to(present.device)[present]
        counts = self.counts[present, None]
        total = self.counts.sum()
        shifts = self.shifts[..., present, :]
        offsets = self.sums[..., present, :] / counts
        means = shifts - shifts[..., :1, :] + offsets
        weights = counts / total
        if global_mean == "classes":
            weights = torch.full_like(counts, 1 / len(counts))
        between = means - (weights * means).sum(-2, keepdim=True)

        # trace(Σ_W Σ_B⁺) by the few directions in which class means differ
        scaled = between / len(counts) ** 0.5
        _, sizes, directions = torch.linalg.svd(scaled, full_matrices=False)
        values = sizes.square()  # eigenvalues of Σ_B
        kept = values > _CUT * values.amax(-1, keepdim=True)
        around = ((directions @ self.moment) * directions).sum(-1)
        within = around - (counts * (offsets @ directions.mT).square()).sum(-2)
        variance = within.clamp_min(0) / total
        trace = torch.where(kept, variance / values, 0.0).sum(-1)
        nc1 = torch.where(sizes.amax(-1) > 0, trace / len(counts), torch.nan)

        norms = vector_norm(between, dim=-1)
        nc2_norms = norms.std(-1, correction=0) / norms.mean(-1)
        nc3 = None if classifier is None else _nc3(between, classifier)
        return NeuralCollapse(nc1, nc2_norms, _nc2_angles(between), nc3)


class FromCollapse(How):
    """A metric of pooled states by class: the field of `NeuralCollapse` that has its name."""

    needs = "labels"


NC1 = Metric(
    neural_collapse,
    FromCollapse(),
    name="nc1",
    title="NC1",
    reading="low: samples of a class lie on one point",
    meaning="Spread of samples within their classes over that of the class means, trace(Σ_W Σ_B⁺) / K, in a "
    "layer's pooled states; from 0, no unit.",
    direction="Low: states have collapsed onto their classes, as they do late in training.",
    low=True,
    log=True,
)
NC2_NORMS = Metric(
    neural_collapse,
    FromCollapse(),
    name="nc2_norms",
    title="NC2 (norms)",
    reading="low: class means are equally far from their centre",
    meaning="Coefficient of variation of the norms of the centred class means, in a layer's pooled states; "
    "from 0, no unit.",
    direction="Low: no class stands out, as in a simplex.",
    low=True,
)
NC2_ANGLES = Metric(
    neural_collapse,
    FromCollapse(),
    name="nc2_angles",
    title="NC2 (angles)",
    reading="low: class means are as far apart as they can be",
    meaning="Mean |cos + 1/(K − 1)| over all pairs of centred class means, in a layer's pooled states; "
    "from 0.",
    direction="Low: every two classes have the angle of a simplex.",
    low=True,
)

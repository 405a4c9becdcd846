"""What neural collapse needs of states that come in batches: sums by class."""

from dataclasses import dataclass

import torch
from torch import Tensor

from layerscope.metrics.neural_collapse import NeuralCollapse, collapsed


@dataclass
class ClassSums:
    """Float64 sums of states `[..., n, D]` by class: `counts` `[K]`, `sums` `[..., K, D]`, one D x D `moment` of all.

    Each class is summed around a point near its mean, that of its first batch, in `shifts`: neither
    a large offset nor classes that have collapsed to points cancel digits away. Memory is 8 (D +
    2K) D bytes, whatever the number of states.

    >>> from layerscope.metrics.class_sums import ClassSums
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

    def tensors(self) -> dict[str, Tensor]:
        """Return every field by name, as a file keeps them."""
        return dict(vars(self))

    def update(self, states: Tensor, labels: Tensor) -> None:
        """Add finite states `[..., n, D]` with their classes `[n]`; there may be classes that are not yet known."""
        if states.device.type != "mps":  # which knows no float64
            self.to(states.device)
        rows, labels = states.to(self.moment.device).double(), labels.to(self.moment.device)
        if not len(labels):
            return
        classes, positions, counts = torch.unique(labels, return_inverse=True, return_counts=True)
        if (most := int(classes[-1]) + 1) > len(self.counts):
            vars(self).update(vars(self.at(torch.arange(len(self.counts)), most)))
        first = self.counts[classes] == 0
        means = rows.new_zeros(*rows.shape[:-2], len(classes), rows.shape[-1]).index_add_(
            -2, positions, rows
        )
        self.shifts[..., classes[first], :] = (means / counts[:, None])[..., first, :]
        moved = rows - self.shifts[..., labels, :]
        self.counts[classes] += counts
        self.sums.index_add_(-2, labels, moved)
        self.moment += moved.mT @ moved

    def at(self, numbers: Tensor, classes: int) -> "ClassSums":
        """Return the same sums over `classes` classes, with class k renumbered as `numbers[k]`."""
        moved = ClassSums.empty(classes, *self.moment.shape[:-1])
        moved.to(self.moment.device)
        moved.counts[numbers], moved.moment = self.counts, self.moment
        moved.shifts[..., numbers, :], moved.sums[..., numbers, :] = self.shifts, self.sums
        return moved

    def to(self, device: torch.device | str) -> None:
        """Move to a device."""
        for name, sums in vars(self).items():
            setattr(self, name, sums.to(device))

    def __add__(self, other: "ClassSums") -> "ClassSums":
        other.to(self.moment.device)
        classes = max(len(self.counts), len(other.counts))
        ours, theirs = (sums.at(torch.arange(len(sums.counts)), classes) for sums in (self, other))
        shifts = torch.where((ours.counts == 0)[:, None], theirs.shifts, ours.shifts)
        apart = (theirs.shifts - shifts) * (theirs.counts > 0)[:, None]
        moved = theirs.counts[:, None] * apart
        cross = theirs.sums.mT @ apart
        moment = ours.moment + theirs.moment + cross + cross.mT + apart.mT @ moved
        return ClassSums(
            ours.counts + theirs.counts, shifts, ours.sums + theirs.sums + moved, moment
        )

    def collapse(self, classifier: Tensor | None = None) -> NeuralCollapse | None:
        """Return what `neural_collapse` gives of all states at once; None for fewer than two classes.

        `classifier` `[K, D]` has a row for each class; those of classes without a state do not
        count.
        """
        there = self.counts > 0
        if int(there.sum()) < 2:
            return None
        counts, total = self.counts[there], self.counts.sum()
        shifts, off = self.shifts[..., there, :], self.sums[..., there, :] / counts[:, None]
        means = shifts - shifts[..., :1, :] + off
        between = means - (counts[:, None] * means).sum(-2, keepdim=True) / total

        def spread(directions: Tensor) -> Tensor:
            around = ((directions @ self.moment) * directions).sum(-1)
            return (around - (counts[:, None] * (off @ directions.mT).square()).sum(-2)).clamp_min(
                0
            ) / total

        return collapsed(
            between, spread, None if classifier is None else classifier.to(there.device)[there]
        )

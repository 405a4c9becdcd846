"""What neural collapse and the centred cosine need of states that come in batches: sums by class, and some rows."""

import torch
from torch import Tensor

from layerscope.metrics.neural_collapse import NeuralCollapse, collapsed


class ClassSums:
    """Float64 sums of states `[n, D]` of K classes: count and sum of each class, and one D x D second moment of all.

    Each class is summed around a point near its mean, that of its first batch: neither a large offset nor classes that
    have collapsed to points cancel digits away. Memory is 8 (D + 2K) D bytes, whatever the number of states.
    """

    def __init__(self, classes: int, width: int) -> None:
        self.counts = torch.zeros(classes, dtype=torch.float64)
        self.shifts = torch.zeros(classes, width, dtype=torch.float64)
        self.sums = torch.zeros(classes, width, dtype=torch.float64)
        self.moment = torch.zeros(width, width, dtype=torch.float64)

    def update(self, states: Tensor, labels: Tensor) -> None:
        """Add finite states `[n, D]` with their classes `[n]`."""
        if states.device.type != "mps":  # which knows no float64
            self.to(states.device)
        rows, labels = states.to(self.moment.device).double(), labels.to(self.moment.device)
        counts = torch.bincount(labels, minlength=len(self.counts)).double()
        means = torch.zeros_like(self.sums).index_add_(0, labels, rows) / counts.clamp_min(1)[:, None]
        first = (self.counts == 0) & (counts > 0)
        self.shifts[first] = means[first]
        moved = rows - self.shifts[labels]
        self.counts += counts
        self.sums.index_add_(0, labels, moved)
        self.moment.addmm_(moved.T, moved)

    def to(self, device: torch.device | str) -> None:
        """Move to a device."""
        for name, sums in vars(self).items():
            setattr(self, name, sums.to(device))

    def merge(self, other: "ClassSums") -> None:
        """Add the sums over other states of the same classes."""
        other.to(self.moment.device)
        first = self.counts == 0
        self.shifts[first] = other.shifts[first]
        apart = (other.shifts - self.shifts) * (other.counts > 0)[:, None]
        moved = other.counts[:, None] * apart
        cross = other.sums.T @ apart
        self.counts += other.counts
        self.sums += other.sums + moved
        self.moment += other.moment + cross + cross.T + apart.T @ moved

    def collapse(self, classifier: Tensor | None = None) -> NeuralCollapse | None:
        """Return what `neural_collapse` gives of all states at once; None for fewer than two classes.

        `classifier` `[K, D]` has a row for each class; those of classes without a state do not count.
        """
        there = self.counts > 0
        if int(there.sum()) < 2:
            return None
        counts, total = self.counts[there], self.counts.sum()
        off = self.sums[there] / counts[:, None]
        means = self.shifts[there] - self.shifts[there][0] + off
        between = means - (counts[:, None] * means).sum(0) / total

        def spread(directions: Tensor) -> Tensor:
            around = ((directions @ self.moment) * directions).sum(-1)
            return (around - (counts[:, None] * (off @ directions.T).square()).sum(0)).clamp_min(0) / total

        return collapsed(between, spread, None if classifier is None else classifier.to(there.device)[there])


class SomeRows:
    """Every k-th of many rows, k doubled whenever more than `most` are kept: an even sample of bounded size."""

    def __init__(self, most: int) -> None:
        self.most, self.step, self.seen = max(2, most), 1, 0
        self.parts: list[Tensor] = []

    def choose(self, n: int) -> Tensor:
        """Return which of the next `n` rows are kept, their indices."""
        chosen = torch.arange(-self.seen % self.step, n, self.step)
        self.seen += n
        return chosen

    def add(self, rows: Tensor) -> None:
        """Keep the rows that were chosen, `[n, …]`."""
        self.parts.append(rows.cpu())
        while sum(map(len, self.parts)) > self.most:
            self.parts, self.step = [self.rows[::2]], 2 * self.step

    @property
    def rows(self) -> Tensor:
        """The rows that are kept."""
        return torch.cat(self.parts) if self.parts else torch.empty(0)

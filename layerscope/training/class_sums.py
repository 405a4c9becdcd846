"""What NC1 needs of one layer's states: sums over the classes, of which batches and processes are added."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from layerscope.metrics.neural_collapse import nc1


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

    def merge(self, other: ClassSums) -> None:
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

    def nc1(self) -> float:
        """Return what `neural_collapse` gives of all states at once as `nc1`; NaN for fewer than two classes."""
        there = self.counts > 0
        if int(there.sum()) < 2:
            return math.nan
        counts, total = self.counts[there], self.counts.sum()
        off = self.sums[there] / counts[:, None]
        means = self.shifts[there] - self.shifts[there][0] + off
        between = means - (counts[:, None] * means).sum(0) / total

        def spread(directions: Tensor) -> Tensor:
            around = ((directions @ self.moment) * directions).sum(-1)
            return (around - (counts[:, None] * (off @ directions.T).square()).sum(0)).clamp_min(0) / total

        return float(nc1(between, spread))

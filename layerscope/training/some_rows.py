"""An even sample of rows that come in batches, such as the centred cosine needs."""

import torch
from torch import Tensor


class SomeRows:
    """Every k-th of many rows, k doubled whenever more than `most` are kept: an even sample of bounded size."""

    def __init__(self, most: int) -> None:
        self.most = max(2, most)
        self.step = 1
        self.seen = 0
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
            self.parts = [self.rows[::2]]
            self.step = 2 * self.step

    @property
    def rows(self) -> Tensor:
        """The rows that are kept."""
        if self.parts:
            return torch.cat(self.parts)
        return torch.empty(0)

"""States of many samples and layers that may lie on disk, read in float64, block by block.

A block holds a *span* of samples at every layer. How many depends on what must fit into memory at
once: of 13 layers of width 384 a block of 192 MiB could hold 5,041 samples, but a Gram of it for
every layer may take no more than 256 MiB, so that spans are of 803 samples. Of 2,000 samples:

    spans   0–803, 803–1606, 1606–2000
    block   [13, 803, 384], twice, and [13, 394, 384]

Who iterates over blocks gets each in the memory of the one before: it holds until the next.

A first reading finds each layer's mean, around which its rows are then given if they are to be
*centred*, and the typical norm of its rows as they are: what is short beside it is rounding.
"""

import math
from collections.abc import Iterator
from typing import Any, Protocol

import torch
from torch import Tensor

from layerscope.core import LayerscopeError
from layerscope.metrics.arrays import Array, check_equal, directions, slices

BLOCK_BYTES = 192 * 2**20
TILE_BYTES = 256 * 2**20


class RowBlocks(Protocol):
    """States `[N, L, D]` that may lie on disk: a shape, and `states[i:j]` giving the rows `[j - i, L, D]`."""

    @property
    def shape(self) -> Any:
        """The sizes (N, L, D)."""

    def __getitem__(self, rows: slice, /) -> Any:
        """Rows as an array or tensor."""


States = Array | RowBlocks


class Blocks:
    """Blocks `[L, rows, D]` of states, each layer around its mean over all samples if `center`.

    `spans` are the samples of each block, `step` of them but in the last; `scale` `[L, 1, 1]` is
    the root mean square norm of a layer's rows. Raises `LayerscopeError`, by the `name` of the
    states, for values that are not finite.

    >>> blocks = Blocks(torch.arange(12.0).view(6, 1, 2), center=True, step=4)
    >>> [tuple(rows.shape) for rows in blocks]
    [(1, 4, 2), (1, 2, 2)]
    """

    def __init__(
        self, states: States, center: bool, step: int, name: str = "states"
    ) -> None:
        self.count, self.layers, self.width = sizes(states, name)
        self.spans = slices(self.count, step)
        self._states = states
        self._origin = torch.zeros(self.layers, 1, self.width, dtype=torch.float64)
        mean, self.scale = self._survey()
        is_bad = ~torch.isfinite(mean).all(-1).flatten()
        layers = is_bad.nonzero().flatten().tolist()
        if layers:
            raise LayerscopeError(
                f"{name} holds NaN or infinite values at layers {layers}: drop those samples first"
            )
        self._origin = mean if center else torch.zeros_like(mean)

    def _survey(self) -> tuple[Tensor, Tensor]:
        """Read everything once, and return mean `[L, 1, D]` and root mean square norm `[L, 1, 1]` of the rows.

        Around the first sample f, sums are exact where a layer does not vary. Then, on average,
        |x|² = |x − f|² + 2 f (x − f) + |f|².
        """
        first = self._origin = self.read(slice(0, 1)).clone()
        total = torch.zeros_like(first)
        squares = torch.zeros_like(first[..., :1])
        for rows in self:
            total += rows.sum(1, keepdim=True)
            norms = torch.linalg.matrix_norm(rows, keepdim=True)
            squares += norms.square()
        mean = total / self.count
        offset = (first * (2.0 * mean + first)).sum(-1, keepdim=True)
        typical = squares / self.count + offset
        return first + mean, typical.clamp(min=0.0).sqrt()

    def read(self, span: slice, into: Tensor | None = None) -> Tensor:
        """Return one block, written to the memory of `into` where that is given."""
        rows = torch.as_tensor(self._states[span]).transpose(0, 1)
        origin = self._origin.to(rows.device)
        if into is None:
            into = origin.new_empty(rows.shape)
        # Turned to float64 and laid out by layer first: one pass that does all takes five times as
        # long.
        return into[:, : rows.shape[1]].copy_(rows).sub_(origin)

    def __iter__(self) -> Iterator[Tensor]:
        """Yield each block in the same memory: it holds until the next."""
        memory = None
        for span in self.spans:
            rows = self.read(span, memory)
            yield rows
            if memory is None:
                memory = rows

    def squared_norms(self) -> Tensor:
        """Return the squared norms `[L, N]` of all rows."""
        norms = self.scale.new_empty(self.layers, self.count)
        for span, rows in zip(self.spans, self, strict=True):
            # Written at once: small results among large blocks would keep their memory from being
            # used again.
            norms[:, span] = torch.linalg.vector_norm(rows, dim=-1).square()
        return norms

    def directions(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return a block's unit rows, zero where they have no direction, and `[L, rows]` 1 where they have one."""
        unit = directions(rows, self.scale.to(rows.device))
        return unit.nan_to_num(0.0), 1.0 - unit[..., 0].isnan().to(unit.dtype)


def opened(
    states: States, others: States | None, center: bool, widths: str | None = None
) -> tuple[Blocks, Blocks]:
    """Return the blocks of both sides over the same spans of samples; twice the same where there are no others.

    Raises `LayerscopeError` for another number of samples, and for unequal widths where `widths`
    says what to do.
    """
    count, layers, width = sizes(states, "states")
    numbers = layers * width
    if others is not None:
        other_count, other_layers, other_width = sizes(others, "others")
        check_equal("samples", count, other_count, ("states", "others"))
        if widths is not None:
            check_equal("features", width, other_width, ("states", "others"), widths)
        layers += other_layers
        numbers += other_layers * other_width
    # A block must fit, and a Gram tile of it for every layer; in small tiles little is taken below
    # the diagonal of a Gram.
    in_a_block = BLOCK_BYTES // (8 * numbers)
    in_a_tile = math.isqrt(TILE_BYTES // (32 * layers))
    step = max(1, min(in_a_block, in_a_tile))
    left = Blocks(states, center, step)
    if others is None:
        return left, left
    return left, Blocks(others, center, step, "others")


def in_pairs(left: Blocks, right: Blocks) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the blocks of both sides in the same memory, each read once."""
    if right is left:
        for rows in left:
            yield rows, rows
        return
    for rows, columns in zip(left, right, strict=True):
        yield rows, columns.to(rows.device)


def sizes(states: States, name: str) -> tuple[int, int, int]:
    """Return N, L and D of states; anything else is an error.

    >>> sizes(torch.zeros(100, 7, 384), "states")
    (100, 7, 384)
    """
    if not hasattr(states, "shape"):
        raise LayerscopeError(
            f"{name} is a {type(states).__name__}: give one array [samples, layers, features]"
        )
    shape = tuple(int(size) for size in states.shape)
    if len(shape) != 3 or 0 in shape:
        raise LayerscopeError(
            f"{name} has shape {shape}: give [samples, layers, features], none of them 0"
        )
    return shape

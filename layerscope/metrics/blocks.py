"""States of many samples and layers that may lie on disk, read in blocks of samples."""

import math
from collections.abc import Iterator
from typing import Any, Protocol, TypeAlias

import torch
from torch import Tensor

from layerscope.core.errors import LayerscopeError
from layerscope.metrics.arrays import Array, check_equal, directions

BLOCK_BYTES = 192 * 2**20
TILE_BYTES = 256 * 2**20


class RowBlocks(Protocol):
    """States `[N, L, D]` that may lie on disk: a shape, and `states[i:j]` giving the rows `[j - i, L, D]`."""

    @property
    def shape(self) -> Any:
        """The sizes (N, L, D)."""

    def __getitem__(self, rows: slice, /) -> Any:
        """Rows as an array or tensor."""


States: TypeAlias = Array | RowBlocks


class Blocks:
    """Float64 blocks `[L, rows, D]` of states, each layer around its mean over all samples if `center`."""

    def __init__(
        self, states: States, center: bool, step: int, name: str = "states"
    ) -> None:
        self.count, self.layers, self.width = sizes(states, name)
        self.spans = [
            slice(i, min(i + step, self.count)) for i in range(0, self.count, step)
        ]
        self._states = states
        self._offset = torch.zeros(self.layers, 1, self.width, dtype=torch.float64)
        # Around the first sample sums are exact where a layer does not vary.
        first = self._offset = self.read(slice(0, 1)).clone()
        total, squares = torch.zeros_like(first), torch.zeros_like(first[..., :1])
        for rows in self:
            total = total + rows.sum(1, keepdim=True)
            squares = (
                squares
                + torch.linalg.vector_norm(rows, dim=(1, 2), keepdim=True).square()
            )
        mean = total / self.count
        offset = first + mean
        # |x|^2 = |x - f|^2 + 2 f (x - f) + |f|^2, on average
        typical = squares / self.count + (first * (2.0 * mean + first)).sum(
            -1, keepdim=True
        )
        self.scale = typical.clamp(min=0.0).sqrt()
        if not bool(torch.isfinite(offset).all()):
            bad = (
                (~torch.isfinite(offset)).any(-1).flatten().nonzero().flatten().tolist()
            )
            raise LayerscopeError(
                f"{name} holds NaN or infinite values at layers {bad}: drop those samples first"
            )
        self._offset = offset if center else torch.zeros_like(offset)

    def read(self, span: slice, into: Tensor | None = None) -> Tensor:
        """Return one block, written to the memory of `into` where that is given."""
        rows = torch.as_tensor(self._states[span]).transpose(0, 1)
        offset = self._offset.to(rows.device)
        into = (
            torch.empty(rows.shape, dtype=offset.dtype, device=rows.device)
            if into is None
            else into
        )
        # Turned to float64 and laid out by layer first: one pass that does all takes five times as
        # long.
        return into[:, : rows.shape[1]].copy_(rows).sub_(offset)

    def __iter__(self) -> Iterator[Tensor]:
        """Yield each block in the same memory: it holds until the next."""
        memory: Tensor | None = None
        for span in self.spans:
            yield (rows := self.read(span, memory))
            memory = rows if memory is None else memory

    def squared_norms(self) -> Tensor:
        """Return the squared norms `[L, N]` of all rows."""
        norms = torch.empty(
            self.layers, self.count, dtype=torch.float64, device=self.scale.device
        )
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
    shapes = [sizes(states, "states")] + (
        [] if others is None else [sizes(others, "others")]
    )
    check_equal("samples", shapes[0][0], shapes[-1][0], ("states", "others"))
    if widths is not None:
        check_equal(
            "features", shapes[0][2], shapes[-1][2], ("states", "others"), widths
        )
    layers, elements = sum(s[1] for s in shapes), sum(s[1] * s[2] for s in shapes)
    # A block must fit, and a Gram tile of it for every layer; in small tiles little is taken below
    # the diagonal of a Gram.
    step = max(
        1, min(BLOCK_BYTES // (8 * elements), math.isqrt(TILE_BYTES // (32 * layers)))
    )
    left = Blocks(states, center, step)
    return left, left if others is None else Blocks(others, center, step, "others")


def in_pairs(left: Blocks, right: Blocks) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the blocks of both sides in the same memory, each read once."""
    if right is left:
        yield from ((rows, rows) for rows in left)
    else:
        yield from (
            (rows, columns.to(rows.device))
            for rows, columns in zip(left, right, strict=True)
        )


def sizes(states: States, name: str) -> tuple[int, int, int]:
    """Return N, L and D of states; anything else is an error."""
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

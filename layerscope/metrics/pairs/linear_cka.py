"""Linear CKA of every two layers: exact, whatever the number of samples, from sums over blocks."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from layerscope.metrics.pairs import blocks as reading
from layerscope.metrics.pairs.blocks import Blocks, States, in_pairs, opened
from layerscope.metrics.pairs.similarity import check_count
from layerscope.metrics.spectrum import symmetric_product


def linear_cka(states: States, others: States | None, debiased: bool = True) -> Tensor:
    """Return linear `cka` of every two layers, through N x N Grams or D x D' features, whichever is cheaper."""
    left, right = opened(states, others, center=True)
    check_count("CKA", left.count, 4)
    # Grams of all layers, against features of all pairs and of each layer; half of each is symmetric.
    sides = (left,) if right is left else (left, right)
    gram_cost = left.count * sum(side.layers * side.width for side in sides) + left.count * left.layers * right.layers
    feature_cost = left.layers * left.width * right.layers * right.width
    if right is not left:
        feature_cost = 2 * feature_cost + sum(side.layers * side.width**2 for side in sides)
    inner = inner_by_grams if gram_cost < feature_cost else inner_by_features
    cross, own_left, own_right = inner(left, right)
    if debiased:
        norms, others_norms = _row_norms(left, right)
        traces, others_traces = norms.sum(1), others_norms.sum(1)
        count = left.count
        cross = hsic(cross, norms @ others_norms.mT, traces[:, None], others_traces[None, :], count)
        own_left = hsic(own_left, norms.square().sum(1), traces, traces, count)
        own_right = hsic(own_right, others_norms.square().sum(1), others_traces, others_traces, count)
    return cross / (own_left[:, None] * own_right[None, :]).sqrt()


def hsic(inner: Tensor, diagonals: Tensor, trace_x: Tensor, trace_y: Tensor, count: int) -> Tensor:
    """Return the unbiased HSIC_1 of two Grams with zero row sums, from sums that need no Gram in memory.

    `inner` is sum_ij K_ij L_ij, `diagonals` sum_i K_ii L_ii, `trace_x` and `trace_y` the traces, `count` N >= 4. Zero
    row sums turn the row sums without diagonal into minus the diagonal, so that N (N - 3) HSIC_1 = inner - diagonals N
    / (N - 2) + trace_x trace_y / ((N - 1) (N - 2)).

    Source: Song et al. 2012, Feature selection via dependence maximization.
    """
    corrected = inner - diagonals * (count / (count - 2)) + trace_x * trace_y / ((count - 1) * (count - 2))
    return corrected / (count * (count - 3))


def _row_norms(left: Blocks, right: Blocks) -> tuple[Tensor, Tensor]:
    """Return |x_i|^2 of every layer and sample `[L, N]`, of both sides."""
    norms = [
        torch.empty(side.layers, side.count, dtype=torch.float64, device=side.scale.device) for side in (left, right)
    ]
    for span, blocks in zip(left.spans, in_pairs(left, right), strict=True):
        for kept, rows in zip(norms, blocks, strict=True):
            # Written at once: small results among large blocks would keep their memory from being used again.
            kept[:, span] = torch.linalg.vector_norm(rows, dim=-1).square()
    return norms[0], norms[1]


class _GramTiles:
    """Tiles `[L, rows * columns]` of all Grams of one side, in memory that is used again.

    Fresh memory for each tile would cost a third of the time in page faults.
    """

    def __init__(self, blocks: Blocks) -> None:
        self._blocks = blocks
        self._rows = blocks.read(blocks.spans[0])
        self._columns = torch.empty_like(self._rows)
        layers, longest = self._rows.shape[:2]
        self._memory = self._rows.new_empty(layers * longest * longest)
        self._current: Tensor = self._rows

    def turn_to(self, rows: slice) -> None:
        """Take the rows of the tiles to come."""
        self._current = self._blocks.read(rows, self._rows)

    def against(self, columns: slice) -> Tensor:
        """Return the tiles of the current rows against those of another block."""
        return self._product(self._current, self._blocks.read(columns, self._columns))

    def within(self, rows: slice, columns: slice) -> Tensor:
        """Return the tiles of some of the current rows against others of them."""
        return self._product(self._current[:, rows], self._current[:, columns])

    def _product(self, rows: Tensor, columns: Tensor) -> Tensor:
        shape = (len(rows), rows.shape[1], columns.shape[1])
        tiles = self._memory[: math.prod(shape)].view(shape)
        torch.matmul(rows, columns.mT, out=tiles)
        return tiles.flatten(1)


def inner_by_grams(left: Blocks, right: Blocks) -> tuple[Tensor, Tensor, Tensor]:
    """Return <K_a, L_b> of every pair, <K_a, K_a> and <L_b, L_b>, from tiles of the upper halves of the Grams."""
    sides = (_GramTiles(left),) if right is left else (_GramTiles(left), _GramTiles(right))
    cross = torch.zeros(left.layers, right.layers, dtype=torch.float64)
    owns = [torch.zeros(side.layers, dtype=torch.float64) for side in (left, right)]

    def add(tiles: list[Tensor], weight: float) -> None:
        nonlocal cross, owns
        tiles = [tile.to(tiles[0].device) for tile in tiles]
        cross = cross.to(tiles[0].device) + weight * (tiles[0] @ tiles[-1].mT)
        if right is not left:
            owns = [own.to(t.device) + weight * torch.linalg.vecdot(t, t) for own, t in zip(owns, tiles, strict=True)]

    for i, span in enumerate(left.spans):
        for side in sides:
            side.turn_to(span)
        for rows, columns in _upper(span.stop - span.start):
            add([side.within(rows, columns) for side in sides], 1.0 if rows == columns else 2.0)
        for other in left.spans[i + 1 :]:
            add([side.against(other) for side in sides], 2.0)
    return (cross, cross.diagonal(), cross.diagonal()) if right is left else (cross, owns[0], owns[1])


def _upper(count: int) -> Iterator[tuple[slice, slice]]:
    """Yield rows and columns of the pieces on and above a diagonal, cut in four."""
    cuts = sorted({count * i // 4 for i in range(5)})
    for low, high in zip(cuts, cuts[1:], strict=False):
        yield slice(low, high), slice(low, high)
        if low:
            yield slice(0, low), slice(low, high)


def inner_by_features(left: Blocks, right: Blocks) -> tuple[Tensor, Tensor, Tensor]:
    """Return the same as |X_a^T Y_b|_F^2, |X_a^T X_a|_F^2 and |Y_b^T Y_b|_F^2, in tiles of layers."""
    if right is left:
        cross = _features(left, left, [(a, b) for i, a in enumerate(_groups(left)) for b in _groups(left)[i:]])
        upper = cross.triu()
        cross = upper + upper.triu(1).mT
        return cross, cross.diagonal(), cross.diagonal()
    cross = _features(left, right, [(a, b) for a in _groups(left) for b in _groups(right)])
    own = [_features(side, side, [(a, a) for a in _groups(side, 1)]).diagonal() for side in (left, right)]
    return cross, own[0], own[1]


def _groups(side: Blocks, most: int | None = None) -> list[slice]:
    tile = max(1, min(most or side.layers, math.isqrt(reading.TILE_BYTES // 8) // side.width))
    return [slice(low, min(low + tile, side.layers)) for low in range(0, side.layers, tile)]


def _features(left: Blocks, right: Blocks, tiles: list[tuple[slice, slice]]) -> Tensor:
    inner = torch.zeros(left.layers, right.layers, dtype=torch.float64)
    for a, b in tiles:
        product: float | Tensor = 0.0
        for rows, columns in in_pairs(left, right):
            x, y = (part.transpose(0, 1).flatten(1) for part in (rows[a], columns[b]))
            product = product + (symmetric_product(x) if left is right and a == b else x.mT @ y)
        squares = torch.as_tensor(product).square()
        sums = squares.reshape(len(squares) // left.width, left.width, -1, right.width).sum((1, 3))
        inner = inner.to(sums.device)
        inner[a, b] = sums
    return inner

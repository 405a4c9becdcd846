"""Inner products of the Grams of every two layers, as linear CKA needs them, with no Gram in memory.

Of centred layers X_a [N, D] and Y_b [N, D'] that is <K_a, L_b> = tr(X_a X_a^T Y_b Y_b^T) = |X_a^T
Y_b|_F^2: by tiles of the Grams or of products of features, whichever costs less.
"""

import math
from itertools import repeat
from typing import Any

import torch
from torch import Tensor

from layerscope.metrics import blocks
from layerscope.metrics.arrays import slices
from layerscope.metrics.blocks import Blocks, in_pairs
from layerscope.metrics.spectrum import symmetric_product


def inner_products(left: Blocks, right: Blocks) -> tuple[Tensor, Tensor, Tensor]:
    """Return <K_a, L_b> of every pair of layers, <K_a, K_a> and <L_b, L_b>."""
    width = left.layers * left.width
    other_width = right.layers * right.width
    gram_width = width
    if right is not left:
        gram_width += other_width
    gram_cost = left.count * (gram_width + left.layers * right.layers)
    if gram_cost < width * other_width:
        return inner_by_grams(left, right)
    return inner_by_features(left, right)


def inner_by_grams(left: Blocks, right: Blocks) -> tuple[Tensor, Tensor, Tensor]:
    """Return <K_a, L_b> of every pair, <K_a, K_a> and <L_b, L_b>, from tiles of the upper halves of the Grams.

    A tile holds the products of two blocks for the layers of both sides, one below the other; the
    inner products of all layers with each other add up over the tiles.
    """
    sides = [left] if right is left else [left, right]
    layers = sum(side.layers for side in sides)
    device = left.scale.device
    inner = left.scale.new_zeros(layers, layers)
    # Fresh memory for each block and tile would cost a third of the time in page faults.
    row_memory = [side.read(left.spans[0]) for side in sides]
    column_memory = [torch.empty_like(block) for block in row_memory]
    memory = inner.new_empty(layers * row_memory[0].shape[1] ** 2)
    for i, span in enumerate(left.spans):
        rows = [*map(Blocks.read, sides, repeat(span), row_memory)]
        for other in left.spans[i:]:
            columns = rows
            weight = 1.0
            if other is not span:
                # for its mirror image below the diagonal, too
                columns = [*map(Blocks.read, sides, repeat(other), column_memory)]
                weight = 2.0
            shape = (layers, rows[0].shape[1], columns[0].shape[1])
            tile = memory[: math.prod(shape)].view(shape)
            first = 0
            for x, y in zip(rows, columns, strict=True):
                out = tile[first : first + len(x)]
                torch.matmul(x.to(device), y.to(device).mT, out=out)
                first += len(x)
            flat = tile.flatten(1)
            inner += weight * (flat @ flat.mT)
    squares = inner.diagonal()
    cross = inner[: left.layers, -right.layers :]
    return cross, squares[: left.layers], squares[-right.layers :]


def inner_by_features(left: Blocks, right: Blocks) -> tuple[Tensor, Tensor, Tensor]:
    """Return the same as |X_a^T Y_b|_F^2, |X_a^T X_a|_F^2 and |Y_b^T Y_b|_F^2, in tiles of layers."""
    cross = left.scale.new_zeros(left.layers, right.layers)
    for a in _groups(left):
        for b in _groups(right):
            if right is not left or a.start <= b.start:
                cross[a, b] = _features(left, right, a, b)
    if right is left:
        cross = cross.triu() + cross.triu(1).mT
        return cross, cross.diagonal(), cross.diagonal()
    return cross, _squares(left), _squares(right).to(cross.device)


def _groups(side: Blocks) -> list[slice]:
    """Return the layers of a side in groups whose products of features fit in a tile."""
    size = max(1, math.isqrt(blocks.TILE_BYTES // 8) // side.width)
    return slices(side.layers, size)


def _squares(side: Blocks) -> Tensor:
    """Return |X_a^T X_a|_F^2 of each layer."""
    layers = slices(side.layers, 1)
    return torch.cat([_features(side, side, layer, layer)[0] for layer in layers])


def _features(left: Blocks, right: Blocks, a: slice, b: slice) -> Tensor:
    """Return |X_a^T Y_b|_F^2 `[a, b]` for every pair of a layer in `a` and a layer in `b`.

    The features of several layers stand side by side, so that one product has all their pairs.
    """
    product: Any = 0.0
    for rows, columns in in_pairs(left, right):
        x = rows[a].transpose(0, 1).flatten(1)
        y = columns[b].transpose(0, 1).flatten(1)
        product += symmetric_product(x) if left is right and a == b else x.mT @ y
    squares = product.square()
    by_layer = squares.reshape(len(squares) // left.width, left.width, -1, right.width)
    return torch.as_tensor(by_layer.sum((1, 3)))

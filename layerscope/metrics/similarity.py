import math
from collections.abc import Iterator
from typing import Any, Protocol, TypeAlias

import torch
from torch import Tensor

from layerscope.errors import LayerscopeError
from layerscope.metrics.arrays import Array, check_choice, directions
from layerscope.metrics.cka import check_rows, hsic
from layerscope.metrics.spectrum import symmetric_product


class RowBlocks(Protocol):
    """States `[N, L, D]` that may lie on disk: a shape, and `states[i:j]` giving the rows `[j - i, L, D]`."""

    @property
    def shape(self) -> Any:
        """The sizes (N, L, D)."""

    def __getitem__(self, rows: slice, /) -> Any:
        """Rows as an array or tensor."""


States: TypeAlias = Array | RowBlocks

_BLOCK_BYTES = 192 * 2**20
_TILE_BYTES = 256 * 2**20


def similarity_matrix(states: States, metric: str = "cka", debiased: bool = True, center: bool = True) -> Tensor:
    """Return the similarity of every pair of layers, `[L, L]` in float64, reading states in blocks.

    `states` is `[N, L, D]`, an array, a tensor, or an object with a shape and slices of rows. "cka" is
    linear `cka` (`debiased`, N >= 4; always centred), exactly that of each pair; "cosine_similarity" is the
    mean of `cosine_similarity` over the samples whose cosine is defined (`center`). Rows and columns of a layer
    that does not vary are NaN. Memory is bounded whatever N. Raises `LayerscopeError` for non-finite
    states, shapes and options.

    Source: Tracing Representation Progression, section 2; Kornblith et al. 2019.
    """
    check_choice(metric, "metric", ("cka", "cosine_similarity"))
    blocks = _Blocks(states, center or metric == "cka")
    if metric == "cosine_similarity":
        return _mean_cosines(blocks)
    check_rows(blocks.count)
    # N x N Grams of all layers against D x D products of all pairs; half of each is symmetric.
    gram_cost = blocks.count * blocks.layers * (blocks.width + blocks.layers)
    feature_cost = (blocks.layers * blocks.width) ** 2
    inner = _inner_by_grams(blocks) if gram_cost < feature_cost else _inner_by_features(blocks)
    if debiased:
        diagonals, traces = _row_norm_sums(blocks)
        inner = hsic(inner, diagonals, traces[:, None], traces[None, :], blocks.count)
    own = inner.diagonal()
    return inner / (own[:, None] * own[None, :]).sqrt()


def cosine_to(states: States, layer: int = -1, center: bool = True) -> Tensor:
    """Return each sample's cosine between every layer and one of them, `[N, L]` in float64, read in blocks.

    `states` as in `similarity_matrix`; `layer` counts from the end where negative. Column l equals
    `cosine_similarity(states[:, l], states[:, layer], center)`: -1 ... 1, NaN for zero vectors. Raises
    `LayerscopeError` for non-finite states and a layer that does not exist.
    """
    blocks = _Blocks(states, center)
    if not -blocks.layers <= layer < blocks.layers:
        raise LayerscopeError(f"layer {layer} does not exist: these states have layers 0..{blocks.layers - 1}")
    cosines = torch.empty(blocks.count, blocks.layers, dtype=torch.float64, device=blocks.scale.device)
    for span, rows in zip(blocks.spans, blocks, strict=True):
        unit = directions(rows, blocks.scale)
        # Laid down at once: small results among large blocks would keep their memory from being used again.
        cosines[span] = torch.linalg.vecdot(unit, unit[layer]).mT
    return cosines.clamp_(-1.0, 1.0)


def cosine_pairs(states: States, center: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    """Return mean, standard error and number `[L, L]` of the per-sample cosines of every two layers, read in blocks.

    `states` as in `similarity_matrix`, whose cosine matrix is the first of the three. Samples without a cosine
    (`cosine_to`) are not among the number; the mean of none and the error of one are NaN. Raises `LayerscopeError`
    for non-finite states.
    """
    blocks = _Blocks(states, center)
    total = squares = counts = torch.zeros(blocks.layers, blocks.layers, dtype=torch.float64)
    for rows in blocks:
        unit, defined = blocks.directions(rows)
        unit = unit.transpose(0, 1)
        cosines = unit @ unit.mT
        total, squares = total + cosines.sum(0), squares + cosines.square().sum(0)
        counts = counts + defined @ defined.mT
    mean = (total / counts).clamp(-1.0, 1.0)
    spread = (squares / counts - mean.square()).clamp(min=0.0)
    return mean, torch.where(counts > 1, spread / (counts - 1), torch.nan).sqrt(), counts.long()


class _Blocks:
    """Float64 blocks `[L, rows, D]` of states, each layer around its mean over all samples if `center`."""

    def __init__(self, states: States, center: bool) -> None:
        shape = tuple(int(size) for size in states.shape)
        if len(shape) != 3 or 0 in shape:
            raise LayerscopeError(f"states has shape {shape}: give [samples, layers, features], none of them 0")
        self.count, self.layers, self.width = shape
        # A block must fit, and a Gram tile of it for every layer.
        step = min(_BLOCK_BYTES // (8 * self.layers * self.width), math.isqrt(_TILE_BYTES // (8 * self.layers)))
        step = max(1, step)
        self.spans = [slice(i, min(i + step, self.count)) for i in range(0, self.count, step)]
        self._states = states
        self._offset = torch.zeros(self.layers, 1, self.width, dtype=torch.float64)
        first = self.read(self.spans[0])[:, :1].clone()
        total, squares = torch.zeros_like(first), torch.zeros_like(first[..., :1])
        for span in self.spans:
            rows = self.read(span)
            # Sums around the first sample are exact where a layer does not vary.
            total = total + (rows - first).sum(1, keepdim=True)
            squares = squares + torch.linalg.vector_norm(rows, dim=(1, 2), keepdim=True).square()
        offset = first + total / self.count
        self.scale = (squares / self.count).sqrt()
        if not bool(torch.isfinite(offset).all()):
            bad = (~torch.isfinite(offset)).any(-1).flatten().nonzero().flatten().tolist()
            raise LayerscopeError(f"states holds NaN or infinite values at layers {bad}: drop those samples first")
        if center:
            self._offset = offset

    def read(self, span: slice, into: Tensor | None = None) -> Tensor:
        """Return one block, laid in the memory of `into` where that is given."""
        rows = torch.as_tensor(self._states[span]).transpose(0, 1)
        offset = self._offset.to(rows.device)
        if into is None:
            into = torch.empty(rows.shape, dtype=offset.dtype, device=rows.device)
        # One pass turns to float64, centres and lays out by layer.
        return torch.sub(rows, offset, out=into[:, : rows.shape[1]])

    def __iter__(self) -> Iterator[Tensor]:
        return (self.read(span) for span in self.spans)

    def directions(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return a block's unit rows, zero where they have no direction, and `[L, rows]` 1 where they have one."""
        unit = directions(rows, self.scale.to(rows.device))
        return unit.nan_to_num(0.0), 1.0 - unit[..., 0].isnan().to(unit.dtype)


def _mean_cosines(blocks: _Blocks) -> Tensor:
    total: float | Tensor = 0.0
    counts: float | Tensor = 0.0
    for rows in blocks:
        unit, defined = blocks.directions(rows)
        total, counts = total + unit.flatten(1) @ unit.flatten(1).mT, counts + defined @ defined.mT
    return torch.as_tensor(total / counts).clamp(-1.0, 1.0)


def _row_norm_sums(blocks: _Blocks) -> tuple[Tensor, Tensor]:
    """Return sum_i |x_i|^2 |y_i|^2 of all pairs of layers `[L, L]`, and sum_i |x_i|^2 of each `[L]`."""
    products: float | Tensor = 0.0
    sums: float | Tensor = 0.0
    for rows in blocks:
        norms = rows.square().sum(-1)
        products, sums = products + norms @ norms.mT, sums + norms.sum(1)
    return torch.as_tensor(products), torch.as_tensor(sums)


def _inner_by_grams(blocks: _Blocks) -> Tensor:
    """Return <K_a, K_b> of every pair of layers from tiles of their N x N Grams, reading blocks in pairs."""
    rows_buffer = blocks.read(blocks.spans[0])
    columns_buffer = torch.empty_like(rows_buffer)
    layers, longest = rows_buffer.shape[:2]
    tiles_buffer = rows_buffer.new_empty(layers * longest * longest)
    total = rows_buffer.new_zeros(layers, layers)
    for i, span in enumerate(blocks.spans):
        rows = blocks.read(span, rows_buffer)
        for other in blocks.spans[i:]:
            # Fresh memory for each tile would cost a third of the time in page faults.
            columns = rows if other == span else blocks.read(other, columns_buffer)
            shape = (layers, rows.shape[1], columns.shape[1])
            tiles = tiles_buffer[: math.prod(shape)].view(shape)
            torch.matmul(rows, columns.mT, out=tiles)
            flat = tiles.flatten(1)
            total += (flat @ flat.mT) * (1.0 if other == span else 2.0)
    return total


def _inner_by_features(blocks: _Blocks) -> Tensor:
    """Return |X_a^T X_b|_F^2 of every pair of layers, in tiles of layers, each from one reading."""
    layers, width = blocks.layers, blocks.width
    tile = max(1, min(layers, math.isqrt(_TILE_BYTES // 8) // width))
    groups = [slice(low, min(low + tile, layers)) for low in range(0, layers, tile)]
    inner: Tensor | None = None
    for i, left in enumerate(groups):
        for right in groups[i:]:
            sums = _tile_of_features(blocks, left, right)
            inner = sums.new_empty(layers, layers) if inner is None else inner
            inner[left, right], inner[right, left] = sums, sums.mT
    assert inner is not None
    return inner


def _tile_of_features(blocks: _Blocks, left: slice, right: slice) -> Tensor:
    width = blocks.width
    product: float | Tensor = 0.0
    for rows in blocks:
        a, b = (rows[side].transpose(0, 1).flatten(1) for side in (left, right))
        product = product + (symmetric_product(a) if left == right else a.mT @ b)
    squares = torch.as_tensor(product).square()
    return squares.reshape(len(squares) // width, width, -1, width).sum((1, 3))

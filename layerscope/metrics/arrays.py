"""What every metric begins and ends with: arrays read as tensors, checked, centred, scaled; means with errors.

Metrics take NumPy arrays and tensors of any precision. Half precision overflows when it is squared,
so that values become float32, or float64 where a statistic runs over a whole data set. What is not
defined is NaN, never an error, but for input that is wrong.
"""

import math
import warnings
from typing import Any, NamedTuple

import numpy.typing as npt
import torch
from torch import Tensor

from layerscope.core import LayerscopeError, near

Array = npt.NDArray[Any] | Tensor


class Estimate(NamedTuple):
    """A value, its standard error (NaN where it is unknown), and the number of values behind it."""

    value: float
    stderr: float
    n: int


def mean(values: Tensor) -> Estimate:
    """Return mean, standard error and number of the values that are not NaN.

    >>> mean(torch.tensor([1.0, 1.0, 1.0, torch.nan]))
    Estimate(value=1.0, stderr=0.0, n=3)
    """
    finite = values[~torch.isnan(values)]
    n = len(finite)
    value = float(finite.mean())
    error = math.nan
    if n > 1:
        error = float(finite.std()) / math.sqrt(n)
    return Estimate(value, error, n)


def as_tensor(values: Array, name: str, dims: int = 0) -> Tensor:
    """Return `values`, of `dims` dimensions or more, in float32 or float64: half precision overflows when squared."""
    tensor = _read(values)
    if tensor.ndim < dims:
        raise LayerscopeError(
            f"{name} has shape {tuple(tensor.shape)}: give an array with at least {dims} dimensions"
        )
    return tensor if tensor.dtype in (torch.float32, torch.float64) else tensor.float()


def as_finite(values: Array, name: str, dims: int) -> Tensor:
    """Return `values`, not empty and finite, in float32 or float64, whichever holds them."""
    tensor = _read(values)
    if not tensor.is_floating_point():
        tensor = tensor.double()  # integers above 2^24 do not survive float32
    tensor = as_tensor(tensor, name, dims)
    if tensor.numel() == 0:
        raise LayerscopeError(
            f"{name} is empty (shape {tuple(tensor.shape)}): give at least one row"
        )
    # The sum of all is one fast reading, and not finite where any of them is not.
    if not torch.isfinite(tensor.sum()):
        bad = int((~torch.isfinite(tensor)).sum())
        if bad:
            raise LayerscopeError(
                f"{name} holds {bad} NaN or infinite values: drop or repair those rows first"
            )
    return tensor


def as_finite64(values: Array, name: str, dims: int = 2) -> Tensor:
    """Return `values` as a finite float64 tensor, for statistics over a whole data set."""
    return as_finite(values, name, dims).double()


def as_pair64(
    a: Array, b: Array, names: tuple[str, str], widths: str | None = None
) -> tuple[Tensor, Tensor]:
    """Return two finite float64 tensors `[..., N, D]` of the same N, and of the same D where `widths` is the mend."""
    first = as_finite64(a, names[0])
    second = as_finite64(b, names[1])
    check_equal("rows", first.shape[-2], second.shape[-2], names)
    if widths is not None:
        check_equal("features", first.shape[-1], second.shape[-1], names, widths)
    return first, second.to(first.device)


def check_equal(
    what: str,
    first: int,
    second: int,
    names: tuple[str, str],
    mend: str = "give both the same samples in the same order",
) -> None:
    """Raise `LayerscopeError` where two arrays differ in a size; `mend` says what to do."""
    if first != second:
        raise LayerscopeError(
            f"{names[0]} has {first} {what} and {names[1]} has {second}: {mend}"
        )


def check_choice(value: object, name: str, choices: tuple[object, ...]) -> None:
    """Raise `LayerscopeError` unless `value` is one of `choices`."""
    if value not in choices:
        hint = ""
        if isinstance(value, str):
            hint = near(value, [c for c in choices if isinstance(c, str)])
        raise LayerscopeError(
            f"{name}={value!r} is not one of {', '.join(map(repr, choices))}{hint}"
        )


def as_result(values: Tensor) -> float | Tensor:
    """Return a Python float for one value, and the tensor itself where there are leading dimensions.

    >>> as_result(torch.tensor(1.5)), as_result(torch.tensor([1.5]))
    (1.5, tensor([1.5000]))
    """
    return float(values) if values.ndim == 0 else values


def unit_rows(rows: Tensor) -> Tensor:
    """Return `rows` `[..., D]` scaled to unit Euclidean norm; a zero row stays zero.

    >>> unit_rows(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
    tensor([[0.6000, 0.8000],
            [0.0000, 0.0000]])
    """
    norms = torch.linalg.vector_norm(rows, dim=-1, keepdim=True)
    scaled: Tensor = rows / norms.masked_fill(norms == 0, 1.0)
    return scaled


def directions(rows: Tensor, scale: Tensor) -> Tensor:
    """Return `rows` `[..., D]` scaled to unit norm, NaN where a row is zero but for the rounding of float32.

    `scale` (broadcast to `[..., 1]`) is the size of the vectors before they were centred.
    """
    norms = torch.linalg.vector_norm(rows, dim=-1, keepdim=True)
    # What centring leaves of equal vectors points nowhere: unit norm would make data of rounding.
    is_rounding = norms <= torch.finfo(torch.float32).eps * scale
    scaled: Tensor = rows / norms.masked_fill(is_rounding, torch.nan)
    return scaled


def typical_norm(rows: Tensor) -> Tensor:
    """Return the root mean square norm `[..., 1, 1]` of `rows` `[..., N, D]`.

    >>> typical_norm(torch.tensor([[3.0, 4.0], [0.0, 5.0]]))
    tensor([[5.]])
    """
    norm: Tensor = torch.linalg.matrix_norm(rows, keepdim=True)
    return norm / math.sqrt(rows.shape[-2])


def centred(rows: Tensor) -> Tensor:
    """Return `rows` `[..., N, D]` minus their mean row, exactly zero where all rows are equal.

    >>> centred(torch.tensor([[1.0, 5.0], [3.0, 5.0]]))
    tensor([[-1.,  0.],
            [ 1.,  0.]])
    """
    # Around zero, equal rows would leave rounding noise, which unit norms blow up into data.
    moved = rows - rows[..., :1, :]
    return moved - moved.mean(dim=-2, keepdim=True)


def above_diagonal(square: Tensor) -> Tensor:
    """Return the entries above the diagonal of `[..., n, n]` row by row, `[..., n (n - 1) / 2]`.

    >>> above_diagonal(torch.arange(9).view(3, 3))
    tensor([1, 2, 5])
    """
    above = square.new_ones(square.shape[-2:], dtype=torch.bool).triu(1)
    return square[..., above]


def slices(count: int, step: int) -> list[slice]:
    """Return slices that take `count` rows `step` at a time, the last one what is left.

    >>> slices(10, 4)
    [slice(0, 4, None), slice(4, 8, None), slice(8, 10, None)]
    """
    starts = range(0, count, step)
    return [slice(start, min(start + step, count)) for start in starts]


def real_mask(tokens: Tensor, mask: Array | None) -> Tensor:
    """Return which of tokens `[..., T, D]` are real as booleans `[..., T]`; `mask` (None: all) broadcasts to them."""
    real = torch.as_tensor(True if mask is None else mask).to(tokens.device) != 0
    try:
        return real.expand(tokens.shape[:-1])
    except RuntimeError:
        raise LayerscopeError(
            f"mask has shape {tuple(real.shape)} and tokens {tuple(tokens.shape)}: give a mask with one entry per token"
        ) from None


def real_first(tokens: Tensor, mask: Array | None) -> tuple[Tensor, Tensor]:
    """Return tokens `[..., T, D]` with the real ones moved to the front in order, and their number `[...]`.

    >>> tokens, count = real_first(torch.tensor([[0.0], [1.0], [2.0]]), torch.tensor([0, 1, 1]))
    >>> tokens.flatten().tolist(), count.item()
    ([1.0, 2.0, 0.0], 2)
    """
    if 0 in tokens.shape:
        raise LayerscopeError(
            f"tokens is empty (shape {tuple(tokens.shape)}): give at least one token of one sample"
        )
    *samples, length, _ = tokens.shape
    if mask is None:
        return tokens, torch.full(samples, length, device=tokens.device)
    real = real_mask(tokens, mask)
    counts = real.sum(-1)
    if (real[..., 1:] <= real[..., :-1]).all():
        return tokens, counts
    order = torch.argsort(real.logical_not().to(torch.uint8), dim=-1, stable=True)
    places = order[..., None].expand(tokens.shape)
    return torch.gather(tokens, -2, places), counts


def _read(values: Array) -> Tensor:
    """Return values as a tensor, without torch's warning on arrays that must not be written: nothing here writes."""
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", message="The given NumPy array is not writable"
        )
        tensor = torch.as_tensor(values)
    if tensor.is_complex():
        raise LayerscopeError(
            "complex values have no metric here: give real ones, such as both parts side by side"
        )
    return tensor

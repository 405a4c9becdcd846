"""A mean with its standard error."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor


class Estimate(NamedTuple):
    """A value, its standard error (NaN where it is unknown), and the number of values behind it."""

    value: float
    stderr: float
    n: int


def mean(values: Tensor) -> Estimate:
    """Return mean, standard error and number of the values that are defined."""
    known = values[~torch.isnan(values)]
    n = len(known)
    error = float(known.std()) / math.sqrt(n) if n > 1 else math.nan
    return Estimate(float(known.mean()) if n else math.nan, error, n)

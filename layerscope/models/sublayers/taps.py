"""Where sub-layers are seen inside a block."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Place:
    """Where a state is seen in a block: at the n-th call of a module, what it is given or what it returns."""

    path: str
    call: int
    given: bool


@dataclass(frozen=True)
class Tap:
    """One sub-layer of the model: its site, the layer whose block it is in, and where it is seen there."""

    site: str
    layer: int
    place: Place


@dataclass(frozen=True)
class Sublayers:
    """Every sub-layer that was found, in the order of a forward, and what could not be told."""

    taps: tuple[Tap, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def sites(self) -> dict[str, tuple[int, ...]]:
        """Layers at which each site is found, the sites in the order of the block that has most of them."""
        found: dict[str, list[int]] = {}
        for tap in self.taps:
            found.setdefault(tap.site, []).append(tap.layer)
        orders = [[tap.site for tap in self.taps if tap.layer == layer] for layer in {tap.layer for tap in self.taps}]
        fullest = max(orders, key=len, default=[])
        return {site: tuple(found[site]) for site in dict.fromkeys([*fullest, *found])}


def as_state(hidden: Tensor, shape: torch.Size) -> Tensor | None:
    """Return what a module gets or gives as a state [B, T, D], from [B·T, D] as well; None where it is none."""
    if hidden.shape == shape:
        return hidden
    flat = hidden.ndim == 2 and len(shape) == 3 and hidden.shape == (shape[0] * shape[1], shape[2])
    return hidden.reshape(shape) if flat else None

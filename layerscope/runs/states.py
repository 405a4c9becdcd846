"""Pooled states on disk, read as if they were one array [N, layers, D].

A shard holds a tensor for each site and pooling, `raw.mean` [L+1, n, D], with a row for each layer
of that site. A column of the array is one layer at one site; its rows are rows of the plan, each in
its shard at its offset.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from layerscope.runs.folder import RunFolder, unpacked

PROJECTED = "projected"
"""The site in the space that two towers share, at every layer by the model's own code after its last block."""
OWN = "own"
"""What the pooling of that site is called: the model's own, whatever poolings a run has."""


@dataclass(frozen=True)
class Column:
    """One layer at one site."""

    site: str
    layer: int


@dataclass(frozen=True)
class StoredStates:
    """Some rows of the plan and some layers of one pooling; `states[i:j]` reads a block [j − i, layers, D].

    Rows are in plan order, so that a block lies in neighbouring shards; memory is that of one
    block.
    """

    folder: RunFolder
    pooling: str
    columns: tuple[Column, ...]
    rows: NDArray[np.int64]
    width: int

    @property
    def shape(self) -> tuple[int, int, int]:
        """(N, layers, D)."""
        return len(self.rows), len(self.columns), self.width

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, block: slice) -> Tensor:
        return gather(self.folder, self.pooling, self.columns, self.rows[block])


def sublayers_in(manifest: dict[str, Any]) -> dict[str, list[int]]:
    """Return the sites inside the blocks of a run, each with its layers, by its manifest.

    >>> sublayers_in({"model": {"sublayers": {"attention_out": [1, 2, 3]}}}), sublayers_in({"model": {}})
    ({'attention_out': [1, 2, 3]}, {})
    """
    return dict(manifest["model"].get("sublayers", {}))


def gather(
    folder: RunFolder, pooling: str, columns: Sequence[Column], rows: object
) -> Tensor:
    """Return the states [n, layers, D] of these rows of the plan, in this order, float32."""
    places = folder.plan.loc[np.asarray(rows), ["shard", "offset"]]
    shards, offset = places.to_numpy().T
    # a sub-layer's site has a row only for the layers where it is found, and some states are of
    # some layers alone
    inside = sublayers_in(folder.manifest)
    every = folder.manifest["model"].get("layers")
    at = []
    for column in columns:
        layers = inside.get(column.site, every)
        row = column.layer
        if layers is not None:
            row = layers.index(column.layer)
        at.append((f"{column.site}.{pooling}", row))
    states = torch.empty(0, len(columns), 0)
    for shard in np.unique(shards):
        here = np.flatnonzero(shards == shard)
        take = torch.from_numpy(offset[here])
        with folder.shard(shard) as file:
            keys = set(file.keys())
            parts = [unpacked(file, key, row, keys)[take] for key, row in at]
        block = torch.stack(parts, 1)
        if not states.numel():
            states = block.new_empty(len(shards), *block.shape[1:])
        states[torch.from_numpy(here)] = block
    return states

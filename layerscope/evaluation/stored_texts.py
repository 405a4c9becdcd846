"""Pooled states of texts as they lie on disk, read by any process without the model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open

from layerscope.inputs.samples import key_of
from layerscope.runs import Run
from layerscope.runs.states import Column

Floats = npt.NDArray[np.float32]
Place = tuple[int, str, str]
"""Layer, site and pooling of a vector."""


class MissingTexts(Exception):  # noqa: N818
    """Texts that the store does not hold, where no model is at hand to embed them."""


class StoredTexts:
    """The parts in a folder: `keys` [n, 16] of texts with `states` [P, n, D], a row for each of `places`.

    The texts of a `run` of the same model are known too; their states stay in the run. A pickle holds no states: it
    opens the folder again where it is unpickled, with the parts that are there by then.
    """

    def __init__(self, folder: Path, places: Sequence[Place], width: int, run: Run | None = None) -> None:
        self.folder, self.places, self.width, self.run = folder, tuple(places), width, run
        self._rows: dict[bytes, tuple[Path, int]] = {}
        for part in sorted(self.folder.glob("*.safetensors")):
            self._know(part)
        if run is not None:
            self._rows |= {key: (run.path, row) for key, row in run.keyed_rows().items()}

    def __reduce__(self) -> tuple[Any, ...]:
        return StoredTexts, (self.folder, self.places, self.width, self.run)

    def __len__(self) -> int:
        return len(self._rows)

    def keys(self, texts: Sequence[str]) -> list[bytes]:
        """Return the keys of texts, prompts included; raises `MissingTexts` for those that are not there."""
        keys = [key_of(text) for text in texts]
        missing = sum(key not in self._rows for key in keys)
        if missing:
            raise MissingTexts(f"{missing} of {len(keys)} texts")
        return keys

    def vectors(self, keys: Sequence[bytes], layer: int, site: str, pooling: str) -> Floats:
        """Return the states of one layer, [n, D] float32, in the order of `keys`."""
        place = self.places.index((layer, site, pooling))
        out = np.empty((len(keys), self.width), dtype=np.float32)
        by_part: dict[Path, list[tuple[int, int]]] = {}
        for i, key in enumerate(keys):
            part, row = self._rows[key]
            by_part.setdefault(part, []).append((i, row))
        for part, found in by_part.items():
            to, rows = np.array(found).T
            if self.run is not None and part == self.run.path:
                out[to] = self.run.states(pooling, (Column(site, layer),), rows)[:][:, 0].numpy()
                continue
            with safe_open(part, framework="np") as file:
                out[to] = file.get_slice("states")[place][rows]
        return out

    def _know(self, part: Path) -> bool:
        """Take in the keys of a part; return whether it can be read."""
        try:
            with safe_open(part, framework="np") as file:
                keys: Any = file.get_tensor("keys")
        except (SafetensorError, OSError):
            return False
        self._rows |= {row.tobytes(): (part, i) for i, row in enumerate(keys)}
        return True

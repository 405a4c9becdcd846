"""Pooled states of texts as they lie on disk, read by any process without the model."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open

from layerscope.scores.probe_results import Slot

Floats = npt.NDArray[np.float32]
KEY_BYTES = 16


class MissingTexts(Exception):  # noqa: N818
    """Texts that the store does not hold, where no model is at hand to embed them."""


def key_of(text: str) -> bytes:
    """Return the key of a text, its prompt included."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:KEY_BYTES]


class StoredTexts:
    """The parts in a folder: `keys` [n, 16] of texts with `states` [P, n, D], a row for each of `slots`.

    A pickle holds no states: it opens the folder again where it is unpickled, with the parts that are there by then.
    """

    def __init__(self, folder: Path, slots: Sequence[Slot], width: int) -> None:
        self.folder, self.slots, self.width = folder, tuple(slots), width
        self._rows: dict[bytes, tuple[Path, int]] = {}
        for part in sorted(self.folder.glob("*.safetensors")):
            self._know(part)

    def __reduce__(self) -> tuple[Any, ...]:
        return StoredTexts, (self.folder, self.slots, self.width)

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
        column = self.slots.index((layer, site, pooling))
        out = np.empty((len(keys), self.width), dtype=np.float32)
        by_part: dict[Path, list[tuple[int, int]]] = {}
        for i, (part, row) in enumerate(map(self._rows.__getitem__, keys)):
            by_part.setdefault(part, []).append((i, row))
        for part, found in by_part.items():
            to, rows = np.array(found).T
            with safe_open(part, framework="np") as file:
                out[to] = file.get_slice("states")[column][rows]
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

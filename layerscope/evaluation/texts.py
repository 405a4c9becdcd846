"""Pooled states of texts at every layer, each text embedded once and kept on disk."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from layerscope.errors import LayerscopeError
from layerscope.models import LayeredModel
from layerscope.models.capture import evaluating
from layerscope.models.pooling import pool
from layerscope.profiling.identity import weights_fingerprint
from layerscope.profiling.plan import RAGGED, ROWS_PER_BATCH, TOKENS_PER_BATCH, TOKENS_WORTH_A_BATCH
from layerscope.progress import Silent, Teller
from layerscope.runs.files import aside
from layerscope.runs.place import need_room

Floats = npt.NDArray[np.float32]
KEY_BYTES = 16
BATCHES_PER_PART = 4
FORMAT = 1


def key_of(text: str) -> bytes:
    """Return the key of a text, its prompt included."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:KEY_BYTES]


class TextStates:
    """A store of pooled states: every layer, site and pooling of a text from the one forward that it goes through.

    It lies in a folder of its own below `folder`, named after all that the states depend on (weights, dtype, tokenizer,
    maximal length, poolings). A part is one safetensors file, `keys` [n, 16] with `SITE.POOLING` [L+1, n, D], there
    whole or not at all, so that a killed process loses at most the part it was at. `forwards` and `embedded` count the
    batches and texts that this process ran.
    """

    def __init__(
        self, model: LayeredModel, poolings: Sequence[str], folder: Path, teller: Teller | None = None
    ) -> None:
        self.model, self.poolings, self.teller = model, tuple(poolings), teller or Silent()
        self.folder = folder / _identity(model, self.poolings)
        self.forwards = self.embedded = 0
        self._places: dict[bytes, tuple[Path, int]] = {}
        for part in sorted(self.folder.glob("*.safetensors")):
            self._know(part)

    def __len__(self) -> int:
        return len(self._places)

    def keys(self, texts: Sequence[str]) -> list[bytes]:
        """Return the keys of texts (prompts included), after embedding those that are not there yet.

        Raises `LayerscopeError` for states that are not finite, and where the disk has no room for them.
        """
        keys = [key_of(text) for text in texts]
        missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in self._places}
        if missing:
            self._embed(list(missing.values()))
        return keys

    def vectors(self, keys: Sequence[bytes], layer: int, site: str, pooling: str | None = None) -> Floats:
        """Return the states of one layer, [n, D] float32, in the order of `keys`."""
        out = np.empty((len(keys), self.model.stack.width), dtype=np.float32)
        by_part: dict[Path, list[tuple[int, int]]] = {}
        for i, key in enumerate(keys):
            part, row = self._places[key]
            by_part.setdefault(part, []).append((i, row))
        for part, places in by_part.items():
            to, rows = np.array(places).T
            with safe_open(part, framework="np") as file:
                out[to] = file.get_slice(f"{site}.{pooling or self.poolings[0]}")[layer][rows]
        return out

    def drop(self) -> None:
        """Forget all texts and delete their states."""
        self._places.clear()
        shutil.rmtree(self.folder, ignore_errors=True)
        with suppress(OSError):
            self.folder.parent.rmdir()

    def _embed(self, texts: list[str]) -> None:
        stack = self.model.stack
        lengths = self.model.encoder.lengths(texts)
        batches = list(batches_of(self.model, lengths))
        vectors = len(texts) * (stack.depth + 1) * len(self.model.sites) * len(self.poolings)
        self.folder.mkdir(parents=True, exist_ok=True)
        need_room(self.folder, vectors * stack.width * 4)
        with self.teller.bar("texts at all layers", len(texts), "texts") as advance, evaluating(self.model.module):
            for start in range(0, len(batches), BATCHES_PER_PART):
                chosen = batches[start : start + BATCHES_PER_PART]
                done = [self._batch([texts[i] for i in rows], lengths[rows[0]]) for rows in chosen]
                self._write([texts[i] for rows in chosen for i in rows], done)
                advance(sum(map(len, chosen)))

    def _batch(self, texts: list[str], longest: int) -> dict[str, Tensor]:
        """Return `SITE.POOLING` [L+1, B, D] of one forward; texts without a single token are zero vectors."""
        shape = (self.model.stack.depth + 1, len(texts), self.model.stack.width)
        if longest == 0:
            return {f"{site}.{name}": torch.zeros(shape) for site in self.model.sites for name in self.poolings}
        inputs = self.model.encoder.batch(texts).to(self.model.device)
        pooled: dict[str, list[Tensor]] = {}

        def visit(layer: int, site: str, tokens: Tensor) -> None:
            mask = self.model.mask(inputs, tokens)
            for name in self.poolings:
                pooled.setdefault(f"{site}.{name}", []).append(pool(tokens, mask, name))

        self.model.run(inputs, visit)
        self.forwards += 1
        self.embedded += len(texts)
        found = {name: torch.stack(layers).cpu() for name, layers in pooled.items()}
        for states in found.values():
            self._check(states, texts)
        return found

    def _check(self, states: Tensor, texts: list[str]) -> None:
        broken = (~torch.isfinite(states).all(-1)).nonzero()
        if len(broken):
            layer, row = broken[0].tolist()
            raise LayerscopeError(
                f"{self.model.loaded.name} gives NaN or infinity at layer {layer} for the text {texts[row][:60]!r}: "
                "try --dtype float32, or leave that text out"
            )

    def _write(self, texts: list[str], batches: list[dict[str, Tensor]]) -> None:
        tensors = {name: torch.cat([batch[name] for batch in batches], 1).contiguous() for name in batches[0]}
        keys = np.frombuffer(b"".join(map(key_of, texts)), dtype=np.uint8).reshape(-1, KEY_BYTES)
        tensors["keys"] = torch.from_numpy(keys.copy())
        last = max((int(part.stem) for part in self.folder.glob("*.safetensors")), default=-1)
        part = self.folder / f"{last + 1:05d}.safetensors"
        aside(part, lambda path: save_file(tensors, path))
        self._know(part)

    def _know(self, part: Path) -> None:
        """Take in the keys of a part; one that cannot be read is deleted, and its texts are embedded again."""
        try:
            with safe_open(part, framework="np") as file:
                keys: Any = file.get_tensor("keys")
        except (SafetensorError, OSError):
            part.unlink(missing_ok=True)
            return
        self._places |= {row.tobytes(): (part, i) for i, row in enumerate(keys)}


def batches_of(model: LayeredModel, lengths: Sequence[int]) -> Iterator[list[int]]:
    """Yield the rows of each batch, longest first, with little padding, or none where padding changes states."""
    kind = "cpu" if model.device.type == "cpu" else "cuda"
    rows: list[int] = []
    limit = longest = 0
    for row in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        length = lengths[row]
        ragged = length < RAGGED * longest and len(rows) * longest >= TOKENS_WORTH_A_BATCH[kind]
        alone = length != longest and (not model.padding or length == 0)
        if rows and (len(rows) >= limit or ragged or alone):
            yield rows
            rows = []
        if not rows:
            longest = length
            limit = max(1, min(ROWS_PER_BATCH[kind], TOKENS_PER_BATCH[kind] // max(1, length))) if model.batching else 1
        rows.append(row)
    if rows:
        yield rows


def _identity(model: LayeredModel, poolings: tuple[str, ...]) -> str:
    """Return a name for all that a text's states depend on."""
    encoder: Any = model.encoder
    dtype = next((p.dtype for p in model.module.parameters()), torch.float32)
    probe = encoder.whole(["The quick brown fox, 0123456789: ÀÉ あ."])
    about = (FORMAT, weights_fingerprint(model.module), str(dtype), model.max_length, poolings, model.stack, probe)
    return hashlib.sha256(repr(about).encode()).hexdigest()[:16]

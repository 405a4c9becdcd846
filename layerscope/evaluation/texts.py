"""Pooled states of texts at every layer, each text embedded once and kept on disk."""

import hashlib
import shutil
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from layerscope.core.errors import LayerscopeError
from layerscope.core.files import aside
from layerscope.core.progress import Reporter
from layerscope.core.workers import torch_threads
from layerscope.inputs.samples import KEY_BYTES, key_of
from layerscope.models import LayeredModel
from layerscope.models.capture import evaluating
from layerscope.models.pooling import pool
from layerscope.profiling.identity import states_fingerprint
from layerscope.profiling.plan import batches_of
from layerscope.runs import Run
from layerscope.runs.folder import need_room
from layerscope.runs.states import Column
from layerscope.scores.probe_results import Slot

Floats = npt.NDArray[np.float32]
BATCHES_PER_PART = 4
FORMAT = 3
MEND = "take fewer `samples`, `layers` or poolings, or another `out`"


class MissingTextsError(Exception):
    """Texts that the store does not hold, where no model is at hand to embed them: caught within."""


class StoredTexts:
    """Pooled states as they lie on disk, read by any process without the model.

    The parts in a folder have `keys` [n, 16] of texts with `states` [P, n, D], a row for each of `slots`. The texts of
    a `run` of the same model are known too; their states stay in the run. A pickle holds no states: it opens the folder
    again where it is unpickled, with the parts that are there by then.
    """

    def __init__(self, folder: Path, slots: Sequence[Slot], width: int, run: Run | None = None) -> None:
        self.folder, self.slots, self.width, self.run = folder, tuple(slots), width, run
        self._rows: dict[bytes, tuple[Path, int]] = {}
        self.broken = [part for part in sorted(self.folder.glob("*.safetensors")) if not self._know(part)]
        if run is not None:
            self._rows |= {key: (run.path, row) for key, row in run.keyed_rows().items()}

    def __reduce__(self) -> tuple[Any, ...]:
        return StoredTexts, (self.folder, self.slots, self.width, self.run)

    def __len__(self) -> int:
        return len(self._rows)

    def keys(self, texts: Sequence[str]) -> list[bytes]:
        """Return the keys of texts, prompts included, after embedding those that are not there yet.

        Without the model these raise `MissingTextsError`; with it states that are not finite, and a disk without room
        for them, `LayerscopeError`.
        """
        keys = [key_of(text) for text in texts]
        missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in self._rows}
        if missing:
            self._embed(list(missing.values()))
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
            if self.run is not None and part == self.run.path:
                out[to] = self.run.states(pooling, (Column(site, layer),), rows)[:][:, 0].numpy()
                continue
            with safe_open(part, framework="np") as file:
                out[to] = file.get_slice("states")[column][rows]
        return out

    def _embed(self, texts: list[str]) -> None:
        raise MissingTextsError(f"{len(texts)} texts")

    def _know(self, part: Path) -> bool:
        """Take in the keys of a part, and return whether it can be read."""
        try:
            with safe_open(part, framework="np") as file:
                keys: Any = file.get_tensor("keys")
        except (SafetensorError, OSError):
            return False
        self._rows |= {row.tobytes(): (part, i) for i, row in enumerate(keys)}
        return True


class TextStates(StoredTexts):
    """A store of pooled states: one forward of a text gives its states at all `slots` (layer, site, pooling).

    It has a folder of its own below `folder`, named after all that the states depend on (weights, dtype, tokenizer,
    maximal length, slots). States are written in parts, each one safetensors file that is there whole or not at all,
    so that a killed process loses at most the part it was working on. States that a `run` of the same model has are not
    computed again. `forwards` and `embedded` count the batches and texts that this process ran, `seconds` the time that
    took.

    >>> from pathlib import Path
    >>> from layerscope.models import LoadOptions, Override, find_layers, load
    >>> texts = ["the food was good", "the staff were rude"]
    >>> model = find_layers(load("tiny-bert", LoadOptions()), "text", texts, Override(), max_length=None, prompt="")
    >>> store = TextStates(model, [(2, "raw", "mean")], Path("states"))
    >>> store.vectors(store.keys(texts), 2, "raw", "mean").shape
    (2, 16)
    """

    def __init__(
        self,
        model: LayeredModel,
        slots: list[Slot],
        folder: Path,
        reporter: Reporter | None = None,
        run: Run | None = None,
    ) -> None:
        slots = sorted(set(slots))
        self.model, self.reporter = model, reporter or Reporter()
        self.forwards = self.embedded = 0
        self.seconds = 0.0
        self.threads = torch.get_num_threads()
        about = FORMAT, states_fingerprint(model), slots  # all that the states of a text depend on
        name = hashlib.sha256(repr(about).encode()).hexdigest()[:16]
        super().__init__(folder / name, slots, model.stack.width, run)
        for part in self.broken:  # its texts are embedded again
            part.unlink()

    def size(self, texts: int) -> int:
        """Return the bytes that the states of this many texts take on disk."""
        return texts * (len(self.slots) * self.width * 4 + KEY_BYTES)

    def drop(self) -> None:
        """Forget all texts and delete their states."""
        self._rows.clear()
        shutil.rmtree(self.folder, ignore_errors=True)
        with suppress(OSError):
            self.folder.parent.rmdir()

    def _embed(self, texts: list[str]) -> None:
        start = time.perf_counter()
        lengths = self.model.encoder.lengths(texts)
        batches = batches_of(self.model, lengths)
        self.folder.mkdir(parents=True, exist_ok=True)
        need_room(self.folder, self.size(len(texts)), MEND)
        with (
            torch_threads(self.threads),  # amid a judging that has fewer
            self.reporter.bar("texts at all layers", len(texts), "texts") as advance,
            evaluating(self.model.module),
        ):
            for first in range(0, len(batches), BATCHES_PER_PART):
                chosen = batches[first : first + BATCHES_PER_PART]
                done = [self._batch([texts[i] for i in rows], lengths[rows[0]]) for rows in chosen]
                self._write([texts[i] for rows in chosen for i in rows], done)
                advance(sum(map(len, chosen)))
        self.seconds += time.perf_counter() - start

    def _batch(self, texts: list[str], longest: int) -> Tensor:
        """Return the states [P, B, D] of one forward; texts without a single token are zero vectors."""
        if longest == 0:
            return torch.zeros(len(self.slots), len(texts), self.width)
        inputs = self.model.encoder.batch(texts).to(self.model.device)
        pooled: dict[Slot, Tensor] = {}

        def visit(layer: int, site: str, tokens: Tensor) -> None:
            for slot in self.slots:
                if slot[:2] == (layer, site):
                    pooled[slot] = pool(tokens, self.model.mask(inputs, tokens), slot[2])

        self.model.run(inputs, visit)
        self.forwards += 1
        self.embedded += len(texts)
        states = torch.stack([pooled[slot] for slot in self.slots]).cpu()
        broken = (~torch.isfinite(states).all(-1)).nonzero()
        if len(broken):
            column, row = broken[0].tolist()
            raise LayerscopeError(
                f"{self.model.loaded.name} gives NaN or infinity at layer {self.slots[column][0]} for the text "
                f"{texts[row][:60]!r}: try `dtype='float32'`, or leave that text out"
            )
        return states

    def _write(self, texts: list[str], batches: list[Tensor]) -> None:
        keys = np.frombuffer(b"".join(map(key_of, texts)), dtype=np.uint8).reshape(-1, KEY_BYTES)
        tensors = {"states": torch.cat(batches, 1).contiguous(), "keys": torch.from_numpy(keys.copy())}
        last = max((int(part.stem) for part in self.folder.glob("*.safetensors")), default=-1)
        part = self.folder / f"{last + 1:05d}.safetensors"
        aside(part, lambda path: save_file(tensors, path))
        self._know(part)

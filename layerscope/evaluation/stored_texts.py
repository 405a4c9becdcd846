"""Pooled states of texts or images at every layer, each sample embedded once and kept on disk.

A sample is found by a key, a hash of what it holds: the layers, and tasks that are judged one after
another, share samples and so their states.
"""

import hashlib
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from layerscope.core.errors import LayerscopeError
from layerscope.core.processes import Team
from layerscope.core.progress import Reporter
from layerscope.core.state_store import StateStore
from layerscope.core.workers import torch_threads
from layerscope.inputs.media import read_image
from layerscope.inputs.samples import KEY_BYTES, key_of
from layerscope.models import LayeredModel
from layerscope.models.batching import batches_of
from layerscope.models.capture import evaluating
from layerscope.models.encode import PLURAL
from layerscope.models.identity import states_fingerprint
from layerscope.models.pooling import pool
from layerscope.runs.folder import need_room
from layerscope.runs.states import PROJECTED
from layerscope.scores.probe_results import Slot

Floats = npt.NDArray[np.float32]
BATCHES_PER_PART = 4
FORMAT = 5


def _tensor(slot: Slot) -> str:
    """Name the tensor of a part that has the states of a slot."""
    layer, site, pooling = slot
    return f"{layer}.{site}.{pooling}"


def _decoded(sample: Any) -> Any:
    return read_image(sample) if isinstance(sample, (bytes, Path)) else sample


class TextStates:
    """A store of pooled states: one forward pass over a sample gives its states at all `slots` (layer, site, pooling).

    It has a folder of its own below `folder`, named after all that the states depend on (weights,
    dtype, tokenizer, maximal length, slots). States are written in parts, each one safetensors file
    that is there whole or not at all, so that a killed process loses at most the part it was
    working on. A part has the `keys` [n, 16] of its samples, and for each slot their states [n, D].
    Images may be files (paths or bytes), which are decoded batch by batch. The processes of a `team`
    share the work, and the folder. `lengths` has the tokens of each sample embedded.

    >>> from pathlib import Path
    >>> from layerscope.evaluation.stored_texts import TextStates
    >>> from layerscope.models import LoadOptions, Override, find_layers, load
    >>> texts = ["the food was good", "the staff were rude"]
    >>> model = find_layers(load("tiny-bert", LoadOptions()), "text", texts, Override(), max_length=None, prompt="")
    >>> store = TextStates(model, [(2, "raw", "mean")], Path("states"))
    >>> store.vectors(store.keys(texts), (2, "raw", "mean")).shape
    (2, 16)
    """

    def __init__(
        self,
        model: LayeredModel,
        slots: Sequence[Slot],
        folder: Path,
        reporter: Reporter | None = None,
        team: Team | None = None,
    ) -> None:
        self.model, self.slots = model, sorted(set(slots))
        self.modality = model.encoder.modality
        self.reporter, self.team = reporter or Reporter(), team or Team()
        self.lengths: list[int] = []
        self.threads = torch.get_num_threads()
        about = FORMAT, states_fingerprint(model), self.slots
        name = hashlib.sha256(repr(about).encode()).hexdigest()[:16]
        self.folder = folder / name
        self.store = StateStore(self.folder, "", "part")
        self.store.drop_damaged()  # those samples are embedded again
        self._rows: dict[bytes, tuple[int, int]] = {}
        # one whose mark is missing is whole all the same
        for number in self.store.there():
            if self.store.is_intact(number):
                self._index(number)

    def __len__(self) -> int:
        return len(self._rows)

    def keys(self, samples: Sequence[Any]) -> list[bytes]:
        """Return the keys of texts, prompts included, or of images, after embedding those not there yet.

        Raises `LayerscopeError` for states that are not finite, and a disk without room for them.
        """
        keys = [key_of(sample) for sample in samples]
        missing = dict(zip(keys, samples, strict=True))
        for key in missing.keys() & self._rows.keys():
            del missing[key]
        if missing:
            self._embed(missing)
        return keys

    def vectors(self, keys: Sequence[bytes], slot: Slot) -> Floats:
        """Return the states at a slot, [n, D] float32, in the order of `keys`."""
        vectors = np.empty((len(keys), self._width(slot)), dtype=np.float32)
        parts, rows = np.array([self._rows[key] for key in keys]).reshape(-1, 2).T
        for part in np.unique(parts):
            here = parts == part
            with self.store.open(int(part)) as file:
                states = file.get_tensor(_tensor(slot)).numpy()
            vectors[here] = states[rows[here]]
        return vectors

    def drop(self) -> None:
        """Forget all samples and delete their states, once no process needs them."""
        self._rows.clear()
        self.team.meet()
        if self.team.leads:
            shutil.rmtree(self.folder, ignore_errors=True)
            with suppress(OSError):
                self.folder.parent.rmdir()
        self.team.meet()

    def _width(self, slot: Slot) -> int:
        projection = self.model.projection
        if slot[1] == PROJECTED and projection is not None:
            return projection.width
        return self.model.stack.width

    def _index(self, number: int) -> None:
        """Take in the keys of a part."""
        with self.store.open(number) as file:
            keys = file.get_tensor("keys").numpy()
        self._rows |= {row.tobytes(): (number, i) for i, row in enumerate(keys)}

    def _embed(self, missing: dict[bytes, Any]) -> None:
        samples = list(missing.values())
        lengths = self.model.encoder.lengths(samples)
        self.lengths += lengths
        self.folder.mkdir(parents=True, exist_ok=True)
        size = KEY_BYTES + 4 * sum(map(self._width, self.slots))
        mend = "take fewer `samples`, `layers` or poolings, or another `out`"
        need_room(self.folder, size * len(samples), mend)
        batches = batches_of(self.model, lengths)
        starts = range(0, len(batches), BATCHES_PER_PART)
        parts = [batches[start : start + BATCHES_PER_PART] for start in starts]

        def embed(part: list[list[int]]) -> tuple[int, int]:
            vectors = [
                self._batch([samples[i] for i in rows], lengths[rows[0]])
                for rows in part
            ]
            embedded = [samples[i] for rows in part for i in rows]
            return self._write(embedded, vectors), len(embedded)

        kind = PLURAL[self.modality]
        # the other processes embed the same, sooner or later
        about = hashlib.sha256(b"".join(missing)).hexdigest()
        with (
            torch_threads(self.threads),  # amid a judging that has fewer
            self.reporter.bar(f"{kind} at all layers", len(samples), kind) as advance,
            evaluating(self.model.module),
        ):
            for number, embedded in self.team.each(embed, parts, about):
                self._index(number)
                advance(embedded)

    def _batch(self, samples: list[Any], longest: int) -> dict[Slot, Tensor]:
        """Return by slot the vectors [B, D] of one forward; zeros of texts without a token."""
        if longest == 0:
            return {
                slot: torch.zeros(len(samples), self._width(slot))
                for slot in self.slots
            }
        decoded = list(map(_decoded, samples))
        inputs = self.model.encoder.batch(decoded).to(self.model.device)
        vectors: dict[Slot, Tensor] = {}
        before_projection: dict[Slot, Tensor] = {}

        def visit(layer: int, site: str, tokens: Tensor) -> None:
            for slot in self.slots:
                if slot[:2] == (layer, site):
                    vectors[slot] = pool(
                        tokens, self.model.mask(inputs, tokens), slot[2]
                    ).cpu()
                elif slot[:2] == (layer, PROJECTED) and site == "raw":
                    # a block may change its input in place
                    before_projection[slot] = tokens.clone()

        self.model.run(inputs, visit)
        for slot, tokens in before_projection.items():
            projection = self.model.projection
            assert projection is not None
            masked = replace(inputs, mask=self.model.mask(inputs, tokens))
            vectors[slot] = projection.vectors(tokens, masked).cpu()
        for slot, of_batch in vectors.items():
            self._refuse_broken(slot[0], samples, of_batch)
        return vectors

    def _refuse_broken(self, layer: int, samples: list[Any], vectors: Tensor) -> None:
        broken = (~torch.isfinite(vectors).all(-1)).nonzero()
        if not len(broken):
            return
        sample = samples[int(broken[0])]
        which = f"one of the {PLURAL[self.modality]}"
        if isinstance(sample, str):
            which = f"the text {sample[:60]!r}"
        raise LayerscopeError(
            f"{self.model.loaded.name} gives NaN or infinity at layer {layer} for {which}: try "
            "`dtype='float32'`, or leave that sample out"
        )

    def _write(self, samples: list[Any], batches: list[dict[Slot, Tensor]]) -> int:
        """Write a part, and return its number, which no other process of the team takes."""
        keys = np.frombuffer(b"".join(map(key_of, samples)), dtype=np.uint8).reshape(
            -1, KEY_BYTES
        )
        tensors = {"keys": torch.from_numpy(keys.copy())}
        for slot in self.slots:
            tensors[_tensor(slot)] = torch.cat([batch[slot] for batch in batches])
        last = max(self.store.there(), default=-1)
        mine = count(self.team.rank, self.team.size)
        number = next(number for number in mine if number > last)
        self.store.write(number, tensors)
        return number

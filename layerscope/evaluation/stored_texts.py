"""Pooled states of texts, images or sounds at every layer, each sample embedded once and kept on disk.

A sample is found by a key, a hash of what it holds: tasks share texts, and so their states.
"""

import hashlib
import shutil
import time
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
from layerscope.inputs.media import read_image, read_waveform
from layerscope.inputs.samples import KEY_BYTES, key_of
from layerscope.models import LayeredModel
from layerscope.models.batching import batches_of
from layerscope.models.capture import evaluating
from layerscope.models.encode import PLURAL
from layerscope.models.identity import states_fingerprint
from layerscope.models.pooling import pool
from layerscope.runs import Run
from layerscope.runs.folder import need_room
from layerscope.runs.states import PROJECTED, Column
from layerscope.scores.probe_results import Slot

Floats = npt.NDArray[np.float32]
BATCHES_PER_PART = 4
FORMAT = 4
IN_RUN = -1
"""What stands for the run in the place of a part's number."""
MEND = "take fewer `samples`, `layers` or poolings, or another `out`"


def _tensor(slot: Slot) -> str:
    """Name the tensor of a part that has the states of a slot: those in a shared space have a width of their own."""
    return PROJECTED if slot[1] == PROJECTED else "states"


class MissingTextsError(Exception):
    """Samples that the store does not hold, where no model is at hand to embed them: caught within."""


class StoredTexts:
    """Pooled states as they lie on disk, read by any process without the model.

    The parts in a folder have `keys` [n, 16] of samples of one `modality` with `states` [P, n, D],
    a row for each of `slots`, and those in the space of two towers as `projected` [Q, n, W];
    `widths` are (D, W). The texts of a `run` of the same model are known too; their states stay in
    the run. A pickle holds no states: it opens the folder again where it is unpickled, with the
    parts that are there by then.
    """

    def __init__(
        self,
        folder: Path,
        slots: Sequence[Slot],
        widths: tuple[int, int],
        modality: str,
        run: Run | None = None,
    ) -> None:
        self.folder, self.slots, self.widths = folder, tuple(slots), widths
        self.modality, self.run = modality, run
        self.store = StateStore(folder, "", "part")
        self._rows: dict[bytes, tuple[int, int]] = {}
        for number in self.store.there():  # one whose mark is missing is whole all the same
            if self.store.is_intact(number):
                self._index(number)
        if run is not None:
            self._rows |= {key: (IN_RUN, row) for key, row in run.keyed_rows().items()}

    def __reduce__(self) -> tuple[Any, ...]:
        return StoredTexts, (self.folder, self.slots, self.widths, self.modality, self.run)

    def __len__(self) -> int:
        return len(self._rows)

    def keys(self, samples: Sequence[Any]) -> list[bytes]:
        """Return the keys of texts, prompts included, or of images or sounds, after embedding those not there yet.

        Without the model these raise `MissingTextsError`; with it states that are not finite, and a
        disk without room for them, `LayerscopeError`.
        """
        keys = [key_of(sample) for sample in samples]
        missing = {
            key: sample for key, sample in zip(keys, samples, strict=True) if key not in self._rows
        }
        if missing:
            self._embed(missing)
        return keys

    def vectors(self, keys: Sequence[bytes], layer: int, site: str, pooling: str) -> Floats:
        """Return the states of one layer, [n, D] float32, in the order of `keys`."""
        slot = layer, site, pooling
        column = self.columns(_tensor(slot)).index(slot)
        out = np.empty((len(keys), self.width(slot)), dtype=np.float32)
        parts, rows = np.array([self._rows[key] for key in keys]).reshape(-1, 2).T
        for part in np.unique(parts):
            here = np.flatnonzero(parts == part)
            if part == IN_RUN and self.run is not None:
                states = self.run.states(pooling, (Column(site, layer),), rows[here])
                out[here] = states[:][:, 0].numpy()
                continue
            with self.store.open(int(part)) as file:
                vectors = file.get_slice(_tensor(slot))[column]
                out[here] = vectors[torch.from_numpy(rows[here])].numpy()
        return out

    def columns(self, tensor: str) -> list[Slot]:
        """Return the slots whose states a tensor has, in its order."""
        return [slot for slot in self.slots if _tensor(slot) == tensor]

    def width(self, slot: Slot) -> int:
        """Return the dimensions of a sample's vector at a slot."""
        return self.widths[_tensor(slot) == PROJECTED]

    def _embed(self, samples: dict[bytes, Any]) -> None:
        raise MissingTextsError(f"{len(samples)} samples")

    def _index(self, number: int) -> None:
        """Take in the keys of a part."""
        with self.store.open(number) as file:
            keys = file.get_tensor("keys").numpy()
        self._rows |= {row.tobytes(): (number, i) for i, row in enumerate(keys)}


class TextStates(StoredTexts):
    """A store of pooled states: one forward pass over a sample gives its states at all `slots` (layer, site, pooling).

    It has a folder of its own below `folder`, named after all that the states depend on (weights,
    dtype, tokenizer, maximal length, slots). States are written in parts, each one safetensors file
    that is there whole or not at all, so that a killed process loses at most the part it was
    working on. States that a `run` of the same model has are not computed again. `forwards` and
    `embedded` count the batches and samples that this process ran, `seconds` the time that took,
    `lengths` has the tokens of each sample. Images and sounds may be files (paths or bytes), which
    are decoded batch by batch. The processes of a `team` share the work, and the folder, unless
    each writes all states into one `alone`.

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
        team: Team | None = None,
        alone: bool = False,
    ) -> None:
        slots = sorted(set(slots))
        self.model, self.reporter = model, reporter or Reporter()
        self.team, self.alone = team or Team(), alone
        self.forwards = self.embedded = 0
        self.seconds = 0.0
        self.lengths: list[int] = []
        self.threads = torch.get_num_threads()
        about = FORMAT, states_fingerprint(model), slots  # all that the states of a text depend on
        name = hashlib.sha256(repr(about).encode()).hexdigest()[:16]
        projection = 0 if model.projection is None else model.projection.width
        super().__init__(
            folder / name, slots, (model.stack.width, projection), model.encoder.modality, run
        )
        self.store.drop_damaged()  # those samples are embedded again

    def size(self, samples: int) -> int:
        """Return the bytes that the states of this many samples take on disk."""
        return samples * (sum(map(self.width, self.slots)) * 4 + KEY_BYTES)

    def drop(self) -> None:
        """Forget all samples and delete their states, once no process needs them."""
        self._rows.clear()
        self.team.meet()
        if self.team.leads:
            shutil.rmtree(self.folder, ignore_errors=True)
            with suppress(OSError):
                self.folder.parent.rmdir()
        self.team.meet()

    def _embed(self, missing: dict[bytes, Any]) -> None:
        start, samples = time.perf_counter(), list(missing.values())
        about = hashlib.sha256(
            b"".join(missing)
        ).hexdigest()  # the others embed the same, sooner or later
        # images have one size, and need not be decoded for it
        lengths = self.model.encoder.lengths(
            samples if self.modality == "image" else map(self._decoded, samples)
        )
        self.lengths += lengths
        batches = batches_of(self.model, lengths)
        self.folder.mkdir(parents=True, exist_ok=True)
        need_room(self.folder, self.size(len(samples)), MEND)
        kind = PLURAL[self.modality]
        with (
            torch_threads(self.threads),  # amid a judging that has fewer
            self.reporter.bar(f"{kind} at all layers", len(samples), kind) as advance,
            evaluating(self.model.module),
        ):
            parts = [
                batches[first : first + BATCHES_PER_PART]
                for first in range(0, len(batches), BATCHES_PER_PART)
            ]

            def embed(chosen: list[list[int]]) -> Any:
                batches = [
                    self._batch([self._decoded(samples[i]) for i in rows], lengths[rows[0]])
                    for rows in chosen
                ]
                return batches if self.alone else self._write(samples_of(chosen), batches)

            def samples_of(chosen: list[list[int]]) -> list[Any]:
                return [samples[i] for rows in chosen for i in rows]

            for chosen, made in zip(parts, self.team.each(embed, parts, about), strict=True):
                embedded = samples_of(chosen)
                self._index(self._write(embedded, made) if self.alone else made)
                advance(len(embedded))
        self.seconds += time.perf_counter() - start

    def _decoded(self, sample: Any) -> Any:
        if not isinstance(sample, (bytes, Path)):
            return sample
        return read_image(sample) if self.modality == "image" else read_waveform(sample)

    def _batch(self, samples: list[Any], longest: int) -> dict[Slot, Tensor]:
        """Return by slot the vectors [B, D] of one forward; zeros of texts without a token and of too short sounds."""
        if longest == 0:
            return {slot: torch.zeros(len(samples), self.width(slot)) for slot in self.slots}
        inputs = self.model.encoder.batch(samples).to(self.model.device)
        vectors_of: dict[Slot, Tensor] = {}
        held: dict[int, Tensor] = {}
        projected = {layer for layer, *_ in self.columns(PROJECTED)}

        def visit(layer: int, site: str, tokens: Tensor) -> None:
            for slot in self.slots:
                if slot[:2] == (layer, site):
                    vectors_of[slot] = pool(tokens, self.model.mask(inputs, tokens), slot[2]).cpu()
            if site == "raw" and layer in projected:
                held[layer] = tokens.clone()  # a block may change its input in place

        self.model.run(inputs, visit)
        self.forwards += 1
        self.embedded += len(samples)
        for slot in self.columns(PROJECTED):
            projection, tokens = self.model.projection, held[slot[0]]
            assert projection is not None
            vectors_of[slot] = projection.vectors(
                tokens, replace(inputs, mask=self.model.mask(inputs, tokens))
            ).cpu()
        for slot, vectors in vectors_of.items():
            broken = (~torch.isfinite(vectors).all(-1)).nonzero()
            if len(broken):
                sample = samples[int(broken[0])]
                named = (
                    f"the text {sample[:60]!r}"
                    if isinstance(sample, str)
                    else f"one of the {PLURAL[self.modality]}"
                )
                raise LayerscopeError(
                    f"{self.model.loaded.name} gives NaN or infinity at layer {slot[0]} for {named}: try "
                    "`dtype='float32'`, or leave that sample out"
                )
        return vectors_of

    def _write(self, samples: list[Any], batches: list[dict[Slot, Tensor]]) -> int:
        """Write a part, and return its number, which no other process of the team takes."""
        keys = np.frombuffer(b"".join(map(key_of, samples)), dtype=np.uint8).reshape(-1, KEY_BYTES)
        tensors = {"keys": torch.from_numpy(keys.copy())}
        for name in set(map(_tensor, self.slots)):
            columns = [torch.cat([batch[slot] for batch in batches]) for slot in self.columns(name)]
            tensors[name] = torch.stack(columns)
        last = max(self.store.there(), default=-1)
        mine = count(self.team.rank, self.team.size)
        number = next(number for number in mine if number > last)
        self.store.write(number, tensors)
        return number

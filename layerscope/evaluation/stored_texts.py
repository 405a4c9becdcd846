"""Pooled states of texts at every layer, each text embedded once and kept on disk.

A text is found by a key, a hash of it: the layers, and tasks that are judged one after another,
share texts and so their states.
"""

import shutil
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from layerscope.core import LayerscopeError, Reporter, Team
from layerscope.core.state_store import StateStore
from layerscope.core.workers import torch_threads
from layerscope.inputs.samples import KEY_BYTES, hash_of, key_of
from layerscope.models import LayeredModel, batches_of, evaluating, pool
from layerscope.models.identity import states_fingerprint
from layerscope.runs.folder import need_room
from layerscope.scores.probe_results import Slot

Floats = npt.NDArray[np.float32]
BATCHES_PER_PART = 4
FORMAT = 5


def _tensor(slot: Slot) -> str:
    """Name the tensor of a part that has the states of a slot."""
    layer, site, pooling = slot
    return f"{layer}.{site}.{pooling}"


class TextStates:
    """A store of pooled states: one forward pass over a sample gives its states at all `slots` (layer, site, pooling).

    It has a folder of its own below `folder`, named after all that the states depend on (weights,
    dtype, tokenizer, maximal length, slots). States are written in parts, each one safetensors file
    that is there whole or not at all, so that a killed process loses at most the part it was
    working on. A part has the `keys` [n, 16] of its texts, and for each slot their states [n, D].
    The processes of a `team` share the work, and the folder. `lengths` has the tokens of each text
    embedded.

    >>> from pathlib import Path
    >>> from layerscope.evaluation.stored_texts import TextStates
    >>> from layerscope.models import LoadOptions, Override, find_layers, load
    >>> texts = ["the food was good", "the staff were rude"]
    >>> model = find_layers(load("tiny-bert", LoadOptions()), "text", texts, Override())
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
        self.slots = sorted(set(slots))
        self.model = model
        self.reporter = reporter or Reporter()
        self.team = team or Team()
        self.lengths: list[int] = []
        self.threads = torch.get_num_threads()
        about = FORMAT, states_fingerprint(model), self.slots
        self.folder = folder / hash_of(about)[:16]
        self.store = StateStore(self.folder, "", "part")
        self.store.drop_damaged()  # those samples are embedded again
        self._rows: dict[bytes, tuple[int, int]] = {}
        # one whose mark is missing is whole all the same
        for number in self.store.there():
            if not self.store.is_damaged(number):
                self._index(number)

    def keys(self, texts: Sequence[str]) -> list[bytes]:
        """Return the keys of texts, prompts included, after embedding those not there yet.

        Raises `LayerscopeError` for states that are not finite, and a disk without room for them.
        """
        keys = [key_of(text) for text in texts]
        pairs = zip(keys, texts, strict=True)
        missing = {key: text for key, text in pairs if key not in self._rows}
        if missing:
            self._embed(missing)
        return keys

    def vectors(self, keys: Sequence[bytes], slot: Slot) -> Floats:
        """Return the states at a slot, [n, D] float32, in the order of `keys`."""
        vectors = np.empty((len(keys), self.model.width), dtype=np.float32)
        places = np.array([self._rows[key] for key in keys])
        parts, rows = places.reshape(-1, 2).T
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

    def _index(self, number: int) -> None:
        """Take in the keys of a part."""
        with self.store.open(number) as file:
            keys = file.get_tensor("keys").numpy()
        for i, key in enumerate(keys):
            self._rows[key.tobytes()] = number, i

    def _embed(self, missing: dict[bytes, str]) -> None:
        """Embed texts by their keys, shared with the team, and write them part by part."""
        texts = list(missing.values())
        lengths = self.model.encoder.lengths(texts)
        self.lengths += lengths
        self.folder.mkdir(parents=True, exist_ok=True)
        size = KEY_BYTES + 4 * self.model.width * len(self.slots)
        mend = "take fewer `samples`, `layers` or poolings, or another `out`"
        need_room(self.folder, size * len(texts), mend)
        batches = batches_of(self.model, lengths)
        starts = range(0, len(batches), BATCHES_PER_PART)
        parts = [batches[start : start + BATCHES_PER_PART] for start in starts]

        def embed(part: list[list[int]]) -> tuple[int, int]:
            vectors = []
            embedded = list[str]()
            for rows in part:
                batch = [texts[i] for i in rows]
                vectors.append(self._batch(batch, lengths[rows[0]]))
                embedded += batch
            return self._write(embedded, vectors), len(embedded)

        # the other processes embed the same, sooner or later
        about = hash_of([*missing])
        with (
            torch_threads(self.threads),  # amid a judging that has fewer
            self.reporter.bar("texts at all layers", len(texts), "texts") as advance,
            evaluating(self.model.module),
        ):
            for number, embedded in self.team.each(embed, parts, about):
                self._index(number)
                advance(embedded)

    def _batch(self, texts: list[str], longest: int) -> dict[Slot, Tensor]:
        """Return by slot the vectors [B, D] of one forward; zeros of texts without a token."""
        if longest == 0:
            zeros = torch.zeros(len(texts), self.model.width)
            return dict.fromkeys(self.slots, zeros)
        inputs = self.model.encoder.batch(texts).to(self.model.device)
        vectors: dict[Slot, Tensor] = {}

        def visit(layer: int, site: str, tokens: Tensor) -> None:
            mask = self.model.mask(inputs, tokens)
            for slot in self.slots:
                if slot[:2] == (layer, site):
                    vectors[slot] = pool(tokens, mask, slot[2]).cpu()
                    self._refuse_broken(layer, texts, vectors[slot])

        self.model.run(inputs, visit)
        return vectors

    def _refuse_broken(self, layer: int, texts: list[str], vectors: Tensor) -> None:
        """Raise for a text whose vector is not finite."""
        broken = (~torch.isfinite(vectors).all(-1)).nonzero()
        if len(broken):
            raise LayerscopeError(
                f"{self.model.name} gives NaN or infinity at layer {layer} for the text "
                f"{texts[int(broken[0])][:60]!r}: try `dtype='float32'`, or leave that text out"
            )

    def _write(self, texts: list[str], batches: list[dict[Slot, Tensor]]) -> int:
        """Write a part, and return its number, which no other process of the team takes."""
        keys = np.frombuffer(b"".join(map(key_of, texts)), dtype=np.uint8)
        rows = keys.reshape(-1, KEY_BYTES).copy()
        tensors = {"keys": torch.from_numpy(rows)}
        for slot in self.slots:
            tensors[_tensor(slot)] = torch.cat([batch[slot] for batch in batches])
        last = max(self.store.there(), default=-1)
        mine = count(self.team.rank, self.team.size)
        number = next(number for number in mine if number > last)
        self.store.write(number, tensors)
        return number

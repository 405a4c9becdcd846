import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from layerscope.core.errors import LayerscopeError
from layerscope.inputs.samples import Modality, content, pick

Labels = tuple[str | int | float, ...]
"""Classes, or where all are `float` a number to predict for each sample."""
Digests = npt.NDArray[np.uint64]
TRAINED_ON = "trained_on.npy"
"""Short digests of the samples that a model was trained on, beside its checkpoint; no sample itself."""
MOST_DIGESTS = 2**16
"""Digests that are kept, the lowest: of more samples than that an even share, half a megabyte at most."""


@dataclass(frozen=True, eq=False)
class Corpus:
    """The data a model reads: N samples of one modality, their names, and their labels where known.

    `samples` holds `str` or `Window` (text), RGB `PIL.Image` (image), `Waveform` (audio) or array
    rows (tensor); files are decoded when a sample is read. `notes` lists every guess and everything
    left out, one line each. `running` marks running text, whose samples are lines and may be packed
    into windows. `drawn_from` is how many samples there were where only some were drawn.

    >>> from layerscope.inputs import Corpus
    >>> corpus = Corpus("reviews", "text", ["good food", "rude staff"], names=["a", "b"], labels=("praise", "blame"))
    >>> corpus.take([1]).labels
    ('blame',)
    """

    name: str
    modality: Modality
    samples: Sequence[Any]
    names: Sequence[str]
    labels: Labels | None = None
    notes: tuple[str, ...] = ()
    running: bool = False
    drawn_from: int | None = None

    def __post_init__(self) -> None:
        if (n := len(self.samples)) == 0:
            raise LayerscopeError(f"{self.name} holds no samples: give at least one")
        for what, values in (("names", self.names), ("labels", self.labels)):
            if values is not None and len(values) != n:
                raise LayerscopeError(
                    f"{self.name}: {len(values)} {what} for {n} samples: give one each"
                )

    def __len__(self) -> int:
        return len(self.samples)

    def take(self, indices: Iterable[int]) -> "Corpus":
        """Return the samples at `indices`, in that order; what is lazy stays lazy."""
        chosen = [int(i) for i in indices]
        samples = pick(self.samples, chosen)
        names = tuple(self.names[i] for i in chosen)
        labels = None
        if self.labels is not None:
            labels = tuple(self.labels[i] for i in chosen)
        return replace(self, samples=samples, names=names, labels=labels)

    def fingerprint(self) -> str:
        """Return the sha256 (hex) of modality, contents and labels: equal for equal data at any path."""
        digest = hashlib.sha256(self.modality.encode())
        for index in range(len(self)):
            data = content(self.samples, index)
            digest.update(len(data).to_bytes(8, "little") + data)
        digest.update(repr(self.labels).encode("utf-8", "surrogatepass"))
        return digest.hexdigest()

    @cached_property
    def digests(self) -> Digests:
        """A number for each sample `[N]`, whatever its label: equal for equal contents."""
        hashes = (
            hashlib.blake2b(content(self.samples, i), digest_size=8).digest()
            for i in range(len(self))
        )
        return np.frombuffer(b"".join(hashes), "<u8").astype(np.uint64)

    @cached_property
    def copies(self) -> npt.NDArray[np.bool_]:
        """Which samples `[N]` have exactly the content of an earlier one, whatever their label."""
        import pandas as pd

        return np.asarray(pd.Series(self.digests).duplicated())


def row_numbers(n: int) -> tuple[str, ...]:
    """Return names of samples that have none: their numbers."""
    return tuple(map(str, range(n)))


def kept_digests(corpus: Corpus) -> Digests:
    """Return the digests of a corpus to keep: the lowest, ascending, each once."""
    return np.unique(corpus.digests)[:MOST_DIGESTS]


def seen_of(corpus: Corpus, folder: Path) -> tuple[int, int]:
    """Return how many samples the model in a folder was trained on, of how many for which that is known.

    Both are 0 where nothing is kept there.
    """
    try:
        seen = np.load(folder / TRAINED_ON)
        highest = np.iinfo(np.uint64).max
        if len(seen) >= MOST_DIGESTS:
            highest = seen[-1]
        comparable = corpus.digests[corpus.digests <= highest]
        return int(np.isin(comparable, seen).sum()), len(comparable)
    # no file, or none that we wrote
    except (OSError, ValueError, TypeError, IndexError, EOFError):
        return 0, 0

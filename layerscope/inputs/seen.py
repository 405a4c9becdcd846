"""Which samples a model was trained on: short digests of them in a file beside its checkpoint, no sample itself."""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from layerscope.inputs.corpus import Corpus
from layerscope.inputs.samples import content

FILE = "trained_on.npy"
MOST = 2**16
"""Digests that are kept, the lowest: of more samples than that an even share, half a megabyte at most."""
Digests = NDArray[np.uint64]


def digests(corpus: Corpus) -> Digests:
    """Return a number for each sample, without its label: equal for equal samples, [N]."""
    found = (blake2b(content(corpus.samples, i), digest_size=8).digest() for i in range(len(corpus)))
    return np.frombuffer(b"".join(found), "<u8").astype(np.uint64)


def kept(corpus: Corpus) -> Digests:
    """Return what is kept of a corpus: its lowest digests, ascending, each once."""
    return np.unique(digests(corpus))[:MOST]


def seen_of(corpus: Corpus, folder: Path) -> tuple[int, int]:
    """Return how many samples the model in a folder was trained on, and of how many that can be said, at best of all.

    Both are 0 where nothing is kept there.
    """
    try:
        seen = np.load(folder / FILE)
        cut = seen[-1] if len(seen) >= MOST else np.iinfo(np.uint64).max
        comparable = (own := digests(corpus)) <= cut
        return int(np.isin(own[comparable], seen).sum()), int(comparable.sum())
    except (OSError, ValueError, TypeError, IndexError, EOFError):  # no file, or none that we wrote
        return 0, 0

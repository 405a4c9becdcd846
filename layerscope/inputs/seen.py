"""Which samples a model was trained on: short digests of them in a file beside its checkpoint, no sample itself."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from layerscope.inputs.corpus import Corpus

FILE = "trained_on.npy"
MOST = 2**16
"""Digests that are kept, the lowest: of more samples than that an even share, half a megabyte at most."""
Digests = NDArray[np.uint64]


def kept(corpus: Corpus) -> Digests:
    """Return the digests of a corpus to keep: the lowest, ascending, each once."""
    return np.unique(corpus.digests)[:MOST]


def seen_of(corpus: Corpus, folder: Path) -> tuple[int, int]:
    """Return how many samples the model in a folder was trained on, of how many for which that is known.

    Both are 0 where nothing is kept there.
    """
    try:
        seen = np.load(folder / FILE)
        highest = seen[-1] if len(seen) >= MOST else np.iinfo(np.uint64).max
        comparable = corpus.digests[corpus.digests <= highest]
        return int(np.isin(comparable, seen).sum()), len(comparable)
    except (OSError, ValueError, TypeError, IndexError, EOFError):  # no file, or none that we wrote
        return 0, 0
